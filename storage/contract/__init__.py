"""The Store contract: `Store`, its operations and queries by topic, and their answers.

| module | holds |
| --- | --- |
| `store` | the protocol, and what every engine promises |
| `companies` | claiming, finding and listing companies, and which of them have to look |
| `loading` | a company's state, and tasks by id |
| `turns` | all that a turn changes, and the one reading that it rests on |
| `events` | appending to the log, and reading it |
| `recovery` | what cannot be trusted, and processes that were left behind |
| `reads` | texts that only readers ask for |
| `hosts` | the beginning and the end of the process that runs the database |
| `retention` | pruning by age, and deleting a company |
| `inbox` | messages from processes that do not own the database |
"""
