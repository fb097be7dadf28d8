"""Retention: pruning by age, and deleting companies.

| module | holds |
| --- | --- |
| `policy` | how long things are kept, and what letting go of them came to |
| `pruning` | the walk over everything that may be old |
| `deletion` | a company's deletion, from its mark to its end |
| `housekeeping` | the task of a runtime that does both, and keeps the write-ahead log small |
"""
