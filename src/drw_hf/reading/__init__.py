"""What others wrote, read within limits: files, archives of arrays, answers of servers.

Whoever sends a file or serves an answer may be hostile. Everything is counted while it is read, never afterwards, and
what goes beyond a limit is refused with an error that names the limit.
"""
