"""The edges: mailboxes, actors, attempts, the supervisor. Everything that awaits."""
