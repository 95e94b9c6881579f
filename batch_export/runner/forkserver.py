"""The forkserver: a small process that has preloaded what children need, and forks one for each order it is sent.

Run as `python -m batch_export.runner.forkserver CONTROL_FD ENTRY...`. Over the control socket come paths of orders,
each with two pipes: for the child's events and for its fate (`pid N KEEPER`, then `exit N`, negative for a signal). It
forks a keeper (`keeper.py`), and that the child. It is of our own making because multiprocessing's imports the
caller's main script again in every child, polls children from any thread, and lets them outlive the parent. When the
control socket closes, the parent is gone: the server ends, and with it every keeper and child. Single-threaded.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from batch_export.runner import keeper, worker
from batch_export.runner.loaded import installed_modules
from batch_export.runner.preload import preload

READY = b"ready"
_MESSAGE_BYTES = 1 << 16


def serve(control: socket.socket, installed: frozenset[str]) -> None:
    """Forks children as orders come in and reports their fate, until the control socket closes."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    keepers: set[int] = set()
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    control.sendall(READY)
    while True:
        for ready, _ in selector.select():
            if ready.fileobj is control:
                message, handles, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
                if not message:
                    return  # the parent is gone, and so are we: every keeper is told by the kernel
                events, fate = handles
                pid = os.fork()
                if pid == 0:
                    foreign = (control.fileno(), wake_read, wake_write)
                    _become_keeper(Path(os.fsdecode(message)), events, fate, foreign, installed)
                os.close(events)
                os.close(fate)
                keepers.add(pid)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(keepers)


def _become_keeper(
    order: Path, events: int, fate: int, foreign: tuple[int, ...], installed: frozenset[str]
) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for handle in foreign:
        os.close(handle)

    def work() -> None:
        os.close(fate)
        worker.main(order, events, installed)

    keeper.keep(work, fate, inherited=(events,))


def _reap(keepers: set[int]) -> None:
    while keepers:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        keepers.discard(pid)


def main(arguments: list[str]) -> None:
    """Preloads, says that it is ready, serves."""
    faulthandler.enable()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[0]))
    preload(arguments[1:])
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    if threads > 1:
        print(f"warning: {threads} threads run after preloading; forked children may hang on their locks", flush=True)
    installed = installed_modules()
    gc.collect()
    gc.freeze()  # the collector of a child would otherwise write to, and so copy, the pages that it shares with us
    serve(control, installed)


if __name__ == "__main__":
    main(sys.argv[1:])
