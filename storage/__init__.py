"""Rows and transactions: everything durable. It knows nothing of actors; `actors` imports it, never the reverse.

| module | contains |
| --- | --- |
| `records`, `values` | the rows as immutable values, and how such values are made |
| `columns` | which fields of a record a statement writes and reads |
| `codec` | JSON and text at the edge |
| `errors` | what can go wrong |
| `store` | the contract of a connection, and the two kinds of transaction |
| `bridge`, `inline` | the two connections: aiosqlite on Trio, and inline for tests |
| `nursery` | a nursery that raises the errors of its block as they are |
| `ownership`, `opening`, `database` | which process owns a file, its schema, and opening it all together |
| `writer` | group commit, the only way to change anything |
| `logging` | loggers that are silent until the host configures structlog |
| `wal` | the size of the write-ahead log |
| `inbox` | messages that other processes leave for the owner |
| `retention`, `backup` | pruning and deletion, and copies of the file |
| `units`, `loading`, `statements` | one unit of work, reading back, and the SQL they use |
"""
