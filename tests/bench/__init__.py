"""Speed and size, measured beside the peers: ``python -m tests.bench --help``.

A *case* is one row of the comparison: a subject (turnkeeper, a peer, or the raw loop), a task for it, and its size.
Each run of a case is a fresh process on a fresh file; the cases of a measure take turns, round by round, so that a
machine that is slow for a while is slow for all of them. What is compared is therefore the ratio inside a round, and
what is shown is its median.
"""
