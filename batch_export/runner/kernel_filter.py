"""The kernel's filter under which a child runs: each call that opens, makes or asks about a file is held until a
listener answers.

A socket arrives, the listener's descriptor leaves over it. Nothing is forbidden but io_uring, whose calls the kernel
does not tell of. Linux only; where it cannot be had, the reason leaves.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

from batch_export.runner.calls import MACHINES, Machine

_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5
_NO_NEW_PRIVS = 38
_ALLOW, _NOTIFY, _ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000
_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_AT_EMPTY_PATH = 0x1000
LISTEN = struct.Struct("=I")
"""The number of the process that is watched; it comes with the listener."""


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def be_watched(channel: socket.socket) -> str:
    """Puts this process, and all that it will start, under the eyes of whoever has the other end of `channel`.

    Returns:
        Why it cannot be, as part of a sentence; empty when all went well. There is no way back.
    """
    machine = MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return f"not on {platform.system()} {platform.machine()}"
    libc = ctypes.CDLL(None, use_errno=True)
    program = _filter(machine)
    listener = _install(libc, machine, program, _WAIT_KILLABLE)
    if listener < 0 and ctypes.get_errno() == errno.EACCES:
        libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        listener = _install(libc, machine, program, _WAIT_KILLABLE)
    if listener < 0 and ctypes.get_errno() == errno.EINVAL:  # before 5.19
        listener = _install(libc, machine, program, 0)
    if listener < 0:
        return f"this kernel or container refuses it ({os.strerror(ctypes.get_errno())})"
    socket.send_fds(channel, [LISTEN.pack(os.getpid())], [listener])
    os.close(listener)
    return ""


def _install(libc: ctypes.CDLL, machine: Machine, program: _Program, more: int) -> int:
    return int(libc.syscall(machine.seccomp, _SET_MODE_FILTER, _NEW_LISTENER | more, ctypes.byref(program)))


def _filter(machine: Machine) -> _Program:
    tests: list[tuple[int, int, int, int]] = []
    for number, call in machine.calls.items():
        if call.by_descriptor:  # what is asked of an open file is no news
            low_half = 16 + 8 * call.flags + (4 if sys.byteorder == "big" else 0)
            asked = [(_LOAD_WORD, 0, 0, low_half), (_JUMP_IF_SET, 0, 1, _AT_EMPTY_PATH)]
            tests += [(_JUMP_IF_EQUAL, 0, 4, number), *asked, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
        else:
            tests += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    lines = [
        (_LOAD_WORD, 0, 0, 4),  # the kind of processor that the call is for
        (_JUMP_IF_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD_WORD, 0, 0, 0),  # the call's number
        (_JUMP_IF_EQUAL, 0, 1, machine.io_uring_setup),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        *tests,
        (_RETURN, 0, 0, _ALLOW),
    ]
    instructions = (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))
    return _Program(len(lines), instructions)
