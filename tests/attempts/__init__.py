"""Attempts that always end: fair slots, waiting, stalls, suspects, and handlers that misbehave in every way."""
