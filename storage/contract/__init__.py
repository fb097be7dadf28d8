"""The Store contract: `Store`, its operations and queries by topic, and their answers.

| module | holds |
| --- | --- |
| `store` | the protocol, and what every engine promises |
| `companies` | claiming, finding and listing companies |
| `retention` | pruning by age, and deleting a company |
| `inbox` | messages from processes that do not own the database |
"""
