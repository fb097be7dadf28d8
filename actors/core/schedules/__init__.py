"""Schedules: their records in memory, what falls due, and the moves of a turn about them."""
