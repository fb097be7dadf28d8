"""The inbox: its form, the host that takes what is in it, and those who send."""
