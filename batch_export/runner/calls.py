"""The system's calls that open, make or ask about a file by its path: their numbers, and what their arguments mean.

Numbers are those of Linux, for the processors that `witness.py` knows. Plain tables, no code.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Action = Literal["opens", "enters", "makes", "moves", "empties", "touches", "alters", "cuts", "removes", "lists"]
Does = Action | Literal["kind", "status", "link", "attributes"]
"""`makes` is said of what a call leaves behind where nothing is, `moves` of one that replaces what is there, `empties`
of creat(2), `touches` of one that gives a file another time, `alters` of one that changes what is said of it besides
(rights, owner, attributes), `cuts` of one that gives it another length, `removes` of one that takes a name away,
`lists` of one that reads what is in a folder; `enters` of one that makes it the current one; `kind`, `status`, `link`
and `attributes` are what somebody asks, see `asked.How`.
"""


class Call(msgspec.Struct, frozen=True):
    """One kind of call, with positions among its arguments (-1: there is none).

    Attributes:
        does: what it is for.
        folder: the descriptor of the folder that the path starts from.
        path: the path's address; -1: the descriptor in place of the folder's says which file is meant.
        flags: flags, such as those of open(2).
        flags_in_memory: whether there is an address in place of the flags.
        by_descriptor: whether flags may say that an open file is meant instead of the path.
        source: the address of the path of what gets another name.
        source_folder: the descriptor of the folder that this one starts from.
    """

    does: Does
    folder: int
    path: int
    flags: int = -1
    flags_in_memory: bool = False
    by_descriptor: bool = False
    source: int = -1
    source_folder: int = -1


class Machine(msgspec.Struct, frozen=True):
    """Numbers of one kind of processor: `seccomp` itself, io_uring's set-up, and the calls."""

    audit: int
    seccomp: int
    calls: dict[int, Call]
    io_uring_setup: int = 425


_OPENAT, _OPENAT2 = Call("opens", 0, 1, 2), Call("opens", 0, 1, 2, flags_in_memory=True)
_EXECVE, _EXECVEAT = Call("opens", -1, 0), Call("opens", 0, 1)
_STATAT = Call("status", 0, 1, 3, by_descriptor=True)
_STATX = Call("status", 0, 1, 2, by_descriptor=True)
_ACCESSAT, _READLINKAT = Call("kind", 0, 1), Call("link", 0, 1)
_CUT, _REMOVED, _REMOVED_AT = Call("cuts", -1, 0), Call("removes", -1, 0), Call("removes", 0, 1)
_ATTRIBUTES, _ATTRIBUTES_OPEN = Call("attributes", -1, 0), Call("attributes", 0, -1)
_MADE_AT, _LINKED_AT = Call("makes", 0, 1), Call("makes", 1, 2)
_MOVED, _MOVED_AT = Call("moves", -1, 1, source=0), Call("moves", 2, 3, source=1, source_folder=0)
_NAMED, _NAMED_AT = Call("makes", -1, 1, source=0), Call("makes", 2, 3, source=1, source_folder=0)
_TOUCHED, _TOUCHED_AT = Call("touches", -1, 0), Call("touches", 0, 1)
_ALTERED, _ALTERED_AT, _ALTERED_OPEN = Call("alters", -1, 0), Call("alters", 0, 1), Call("alters", 0, -1)
_FILE_SYSTEM = Call("kind", -1, 0)
"""statfs, which asks whether there is something as well."""
_LISTED = Call("lists", 0, -1)
"""getdents, of a folder that is open."""
_HANDLE_AT = Call("opens", 0, 1)
"""name_to_handle_at: a file may be opened by its handle."""

MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        317,
        {
            262: _STATAT,  # the most frequent ones first
            257: _OPENAT,
            4: Call("status", -1, 0),
            6: Call("link", -1, 0),
            89: Call("link", -1, 0),
            332: _STATX,
            2: Call("opens", -1, 0, 1),
            437: _OPENAT2,
            59: _EXECVE,
            322: _EXECVEAT,
            21: Call("kind", -1, 0),
            80: Call("enters", -1, 0),  # chdir
            269: _ACCESSAT,
            439: _ACCESSAT,
            267: _READLINKAT,
            85: Call("empties", -1, 0),  # creat
            83: Call("makes", -1, 0),  # mkdir
            133: Call("makes", -1, 0),  # mknod, of pipes too
            259: _MADE_AT,
            258: _MADE_AT,
            82: _MOVED,
            264: _MOVED_AT,
            316: _MOVED_AT,
            86: _NAMED,  # link: the older name stays
            265: _NAMED_AT,
            88: Call("makes", -1, 1),  # symlink
            266: _LINKED_AT,
            191: _ATTRIBUTES,
            192: _ATTRIBUTES,
            194: _ATTRIBUTES,
            195: _ATTRIBUTES,
            193: _ATTRIBUTES_OPEN,
            196: _ATTRIBUTES_OPEN,
            132: _TOUCHED,  # utime
            235: _TOUCHED,
            261: _TOUCHED_AT,
            280: _TOUCHED_AT,
            90: _ALTERED,  # chmod
            92: _ALTERED,
            94: _ALTERED,
            260: _ALTERED_AT,
            268: _ALTERED_AT,
            452: _ALTERED_AT,
            91: _ALTERED_OPEN,
            93: _ALTERED_OPEN,
            188: _ALTERED,  # setxattr
            189: _ALTERED,
            197: _ALTERED,
            198: _ALTERED,
            190: _ALTERED_OPEN,
            199: _ALTERED_OPEN,
            303: _HANDLE_AT,
            76: _CUT,
            84: _REMOVED,  # rmdir
            87: _REMOVED,
            263: _REMOVED_AT,
            137: _FILE_SYSTEM,
            78: _LISTED,
            217: _LISTED,
        },
    ),
    "aarch64": Machine(
        0xC00000B7,
        277,
        {
            79: _STATAT,
            56: _OPENAT,
            291: _STATX,
            437: _OPENAT2,
            221: _EXECVE,
            281: _EXECVEAT,
            48: _ACCESSAT,
            439: _ACCESSAT,
            78: _READLINKAT,
            49: Call("enters", -1, 0),  # chdir
            33: _MADE_AT,  # mknod
            34: _MADE_AT,
            38: _MOVED_AT,
            276: _MOVED_AT,
            37: _NAMED_AT,  # link
            36: _LINKED_AT,
            8: _ATTRIBUTES,
            9: _ATTRIBUTES,
            11: _ATTRIBUTES,
            12: _ATTRIBUTES,
            10: _ATTRIBUTES_OPEN,
            13: _ATTRIBUTES_OPEN,
            88: _TOUCHED_AT,
            53: _ALTERED_AT,  # fchmodat
            54: _ALTERED_AT,
            452: _ALTERED_AT,
            52: _ALTERED_OPEN,
            55: _ALTERED_OPEN,
            5: _ALTERED,  # setxattr
            6: _ALTERED,
            14: _ALTERED,
            15: _ALTERED,
            7: _ALTERED_OPEN,
            16: _ALTERED_OPEN,
            264: _HANDLE_AT,
            45: _CUT,
            35: _REMOVED_AT,
            43: _FILE_SYSTEM,
            61: _LISTED,
        },
    ),
}
