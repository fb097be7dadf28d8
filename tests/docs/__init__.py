"""The documents: what is generated is as the code says, and what can be run runs."""
