"""What a fake stage can be told to do: `arguments["do"]` maps a step (`Translate@20` for one opset) to a deed."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOREVER_S = 3600.0
"""Longer than any limit: what hangs is ended, it never ends."""


def act(arguments: dict[str, Any], step: str) -> None:
    """Does what the arguments say, or nothing."""
    deed = arguments.get("do", {}).get(step, "")
    print(f"step {step}", flush=True)
    if deed == "raise":
        raise ValueError(f"{step} was told to raise\nand to say more on a second line")
    if deed == "exit":
        sys.exit(3)
    if deed == "hard_exit":
        os._exit(0)
    if deed == "segfault":
        ctypes.string_at(0)
    if deed == "abort":
        os.kill(os.getpid(), signal.SIGABRT)
    if deed == "hang":
        time.sleep(FOREVER_S)
    if deed == "hang_with_helper":
        os.fork()
        time.sleep(FOREVER_S)
    if deed == "escaping_helper":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:  # twice, as daemons do
                with open(arguments["pids"], "w", encoding="utf-8") as stream:
                    stream.write(str(os.getpid()))
                time.sleep(FOREVER_S)
            os._exit(0)
        while not (os.path.exists(arguments["pids"]) and os.path.getsize(arguments["pids"])):
            time.sleep(0.01)
    if deed.startswith("fork_and_"):
        if other := os.fork():
            os.waitpid(other, 0)  # what it does is looked at
            return
        with open(arguments["pids"], "a", encoding="utf-8") as stream:
            stream.write(f"{os.getpid()}\n")
        if deed == "fork_and_raise":
            raise ValueError("the other process")
        if deed == "fork_and_leave":
            raise SystemExit("the other process")
        return  # as a builder does that forgets to end the process it forked
    if deed == "endless_thread":
        threading.Thread(target=time.sleep, args=(FOREVER_S,)).start()
    if deed == "kill_dask_worker":  # as the kernel does when memory runs out
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _descends(os.getpid(), int(process.name)) and _is_dask(process):
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(FOREVER_S)
    if deed == "recurse":
        act(arguments, step)
    if deed == "move_away":
        os.chdir("/")
        os.environ.clear()
        os.environ["PATH"] = "nowhere"
    if deed == "where":
        assert os.getcwd() != "/"
        assert os.environ["PATH"] != "nowhere"
    if deed == "close_everything":
        os.closerange(3, 256)
    if deed == "out_of_memory":
        raise MemoryError
    if deed == "long_message":
        raise ValueError("é\x00\n" * 3_000_000)
    if deed == "interrupt":
        raise KeyboardInterrupt
    if deed.startswith("signal_"):
        os.kill(os.getpid(), int(deed.removeprefix("signal_")))
        time.sleep(FOREVER_S)
    if deed.startswith("once_"):  # fails as told the first time, and not when it is tried again
        marker = f"{arguments['marker']}-{step}"
        if not os.path.exists(marker):
            with open(marker, "w", encoding="utf-8"):
                pass
            act({**arguments, "do": {step: deed.removeprefix("once_")}}, step)
    if deed == "leak":
        hoard = [bytearray(os.urandom(1 << 20)) for _ in range(300)]
        time.sleep(FOREVER_S)
        print(len(hoard))
    if deed == "flood":
        while True:
            os.write(1, b"flood\n" * 10_000)
    if deed == "chat":
        os.write(1, b"chat\n" * 500_000)
    if deed == "full_disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if deed == "surrogates":
        raise ValueError("a lone surrogate \udc80")


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return False


def _is_dask(process: Path) -> bool:
    return b"dask_worker" in (process / "cmdline").read_bytes()
