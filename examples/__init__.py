"""Five programs that run as they stand. Each keeps its database in the current folder, or where it is told to."""
