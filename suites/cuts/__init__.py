"""Processes that share one SQLite database are killed and their file system is cut, again and again. docs/suites.md has what came of it.

What is cut is real: ext4 or XFS on a loop device, shut down with nothing written back (`disk`). The pool lies outside of it, in memory, and plays
the persistent memory. The recovery runs with another boot id. Then the database must be sound and have every acknowledged transaction,
each whole (`database`). Who writes is `worker`; how the writers are put together is a variant (`loop`).

`flash` does the same to a MariaDB server (`mariadb`) whose pages are behind a flash cache, on a file system of its own; `ddl` to one whose tables, views
and users are changed (`definitions`); `order` to a program that notes its changes of files in a log (`changes`). In `writeback` a program (`appends`) goes on
while its disk fills (`thin`). `rounds` is what all loops have in common.
"""
