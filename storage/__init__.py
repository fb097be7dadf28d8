"""What is durable, and the contract by which it is reached. Knows nothing of actors; `actors` imports it, never the
reverse.

| module | holds |
| --- | --- |
| `contract` | the Store: its operations and queries, and what every engine promises |
| `records`, `values` | the rows as immutable values, and how such values are made |
| `writes` | parts of a turn that change less than a row |
| `errors` | what can go wrong, told apart by type |
| `codec` | JSON and text at the edge |
| `columns` | which fields of a record a statement writes and reads |
| `group_commit` | the only way to change anything, above every engine: batching, retries in an outage, closing |
| `sqlite` | the embedded engine |
| `forks` | a guard for objects that must not be used in a forked child |
| `logging` | loggers that are silent until the host configures structlog |
| `nursery` | a nursery that raises the errors of its block as they are |
"""
