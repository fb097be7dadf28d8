"""What is durable, and the contract by which it is reached. Knows nothing of actors; `actors` imports it, never the
reverse.

| module | holds |
| --- | --- |
| `contract` | the Store: its operations and queries, and what every engine promises |
| `records` | the rows as frozen values |
| `errors` | what can go wrong, told apart by type |
| `codec` | JSON and text at the edge |
| `group_commit` | the one road to a change, above every engine: batching, retries in an outage, closing |
| `sqlite` | the embedded engine |
"""
