"""The forkserver: a small process that has preloaded what children need, and forks one for each order it is sent.

Run as `python -m batch_export.runner.forkserver CONTROL_FD LIFELINE_FD ENTRY...`. Over the control socket come paths of
orders, each with two pipes: for the child's events and for its fate (`pid N KEEPER`, then `exit N`, negative for a
signal). It forks a keeper (`keeper.py`), and that the child. It is of our own making because multiprocessing's imports
the caller's main script again in every child, polls children from any thread, and lets them outlive the parent. The
server ends with its parent, see `lifeline.py`, and with it every keeper and child. Single-threaded.
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
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from batch_export.runner import keeper, worker
from batch_export.runner.folder_variables import watch_reads
from batch_export.runner.greeting import READY, TIED
from batch_export.runner.preload import preload
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.system_folders import tells_nothing
from batch_export.runner.witness import Witness

_MESSAGE_BYTES = 1 << 16


def serve(control: socket.socket, line: socket.socket, preloaded: Preloaded) -> None:
    """Forks children as orders come in and reports their fate, until the control socket closes.

    Args:
        control: where orders come from.
        line: our end of the lifeline; keepers hold it too, until nothing of their child is left.
        preloaded: what the server has imported, which no child has to tell of.
    """
    server = os.getpid()
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
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for handle in (control.fileno(), wake_read, wake_write):
                        os.close(handle)
                    order = Path(os.fsdecode(message))
                    _become_keeper(order, events, fate, line.fileno(), server, preloaded)
                os.close(events)
                os.close(fate)
                keepers.add(pid)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(keepers)


def _become_keeper(order: Path, events: int, fate: int, line: int, server: int, preloaded: Preloaded) -> NoReturn:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def work() -> None:
        os.close(fate)
        os.close(line)
        ours.close()
        worker.main(order, events, preloaded, theirs)

    witness = Witness(ours, tells_nothing)
    keeper.keep(work, fate, server, inherited=(events, theirs.fileno()), witness=witness)


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
    control, line = (socket.socket(fileno=int(number)) for number in arguments[:2])
    for end in (control, line):
        end.set_inheritable(False)  # to programs that a model starts; what is forked has them anyway
    if control.recv(_MESSAGE_BYTES) != TIED:
        return  # the parent went before the kernel could know that we belong to it
    serve(control, line, preloaded_with(arguments[2:]))


def preloaded_with(entries: Sequence[str]) -> Preloaded:
    """Imports what every child has in memory from the start, and makes this process ready to be forked.

    Args:
        entries: see `preload.py`.
    """
    gc.disable()  # nothing becomes garbage while modules are imported; looking for it takes a sixth of the time
    preloaded = Preloaded()
    watch_reads(preloaded.variables.add)
    for entry in entries:
        preload([entry])
        preloaded.note(entry)
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    if threads > 1:
        print(f"warning: {threads} threads run after preloading; forked children may hang on their locks", flush=True)
    preloaded.finish()
    gc.collect()
    gc.freeze()  # the collector of a child would otherwise write to, and so copy, the pages that it shares with us
    gc.enable()
    return preloaded


if __name__ == "__main__":
    main(sys.argv[1:])
