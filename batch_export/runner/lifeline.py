"""A process that ends with the one that started it: by the kernel's hand, at whatever moment and in whatever call.

Both hold an end of a socket pair, the lifeline, over which nothing is ever sent. The moment that the starter's end
closes, and be it by SIGKILL, the kernel kills the process that is tied to the other (O_ASYNC with SIGKILL as its
signal). That needs no code of that process: the starter ties it, and it may be in the middle of an import. Unlike
PR_SET_PDEATHSIG it does not ask which of the starter's threads is still alive. Copies that the tied process leaves to
those that it forks are not tied, but tell the starter when the last of them is gone. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket


def tie(pid: int, line: socket.socket) -> None:
    """Has the kernel kill the process when the other end of the line closes.

    Args:
        pid: this process, or a child of it that has not been waited for.
        line: the child's end of the lifeline, which the child holds open for as long as it lives, and never reads from
            (the kernel sends no signal for a socket on which somebody waits).
    """
    import fcntl  # lazy: the module exists on POSIX only

    fcntl.fcntl(line, fcntl.F_SETOWN, pid)
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)


def cut(line: socket.socket, limit_s: float) -> None:
    """Ends the process at the other end of the line, and returns when all that held that end are gone.

    Args:
        line: the starter's end.
        limit_s: how long to wait for what the process has forked.
    """
    line.settimeout(limit_s)
    with line, contextlib.suppress(OSError):  # nobody is there any more; or something does not end, even when killed
        line.shutdown(socket.SHUT_WR)
        line.recv(1)
