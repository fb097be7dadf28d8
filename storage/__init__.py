"""Rows and transactions: what is durable. Knows nothing of actors; `actors` imports it, never the reverse.

| module | holds |
| --- | --- |
| `records` | the rows as frozen values |
| `codec` | JSON and text at the edge |
| `store` | the contract of a connection, and the two shapes of a transaction |
| `bridge`, `inline` | the two connections: aiosqlite on Trio, and inline for tests |
| `ownership`, `opening`, `database` | whose a file is, its schema, and all of it opened together |
| `writer` | group commit, the only road to a change |
| `inbox` | messages that other processes leave for the owner |
| `units`, `loading`, `statements` | one unit of work, reading back, and the SQL they use |
"""
