"""How many files the process may have open. Connections are files, too, and must leave room for those of the log."""

from __future__ import annotations

import fcntl
import os
import resource

#: Kept for the log, the checkpoint, the listeners and the admin pages.
RESERVED = 128
#: The kernel's own limit for a process (`fs.nr_open`) where nobody changed it; a higher one cannot be set.
UNLIMITED = 1 << 20
#: Descriptors for which the kernel's table of them has room from the start: 128 KB.
FIRST_TABLE = 1 << 14


def room_for_connections() -> int:
    """Raise the limit of open files as far as the process itself may: how many connections it then leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = UNLIMITED
    if soft != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(hard - RESERVED, hard // 2)  # so few files that none are left for clients would be no service


def grow_table() -> None:
    """Have the kernel's table of open files grown before clients come.

    It begins with 64 and is doubled when it is full; each time the threads of the process wait, some 10 ms.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = FIRST_TABLE if soft == resource.RLIM_INFINITY else min(FIRST_TABLE, soft)
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, last - 1))
    os.close(descriptor)
