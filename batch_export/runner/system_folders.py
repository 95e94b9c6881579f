"""Which paths are the system's own or the standard library's, so that nothing in them is a model's. A path arrives, a
yes or no leaves.

What is mounted below the system's folders is not: memory (`/dev/shm`), drives (`/run/media`), secrets (`/run/secrets`).
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from functools import cache

_FOLDERS = ("/proc", "/sys", "/dev", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_FOLDERS_OF_USR = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")
_FOLDERS_OF_RUN = (
    "NetworkManager",
    "blkid",
    "cups",
    "dbus",
    "lock",
    "log",
    "mount",
    "nscd",
    "nvidia-persistenced",
    "resolvconf",
    "sudo",
    "systemd",
    "udev",
    "utmp",
)
_MEMORY = "/dev/shm/"
_SIGNS_IN_MEMORY = ("/dev/shm/sem.", "/dev/shm/__KMP_REGISTERED_LIB_")
"""Semaphores, and what Intel's OpenMP runtime leaves for its other copies."""

PLACES_OF_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
"""What is in the path of whatever is installed, in a system's folder too: whose it is counts."""
_ENVIRONMENT = re.compile(r"/proc/[^/]+/(task/[0-9]+/)?environ")


def is_environment(path: str) -> bool:
    """Returns whether an absolute path is that of a process' environment variables."""
    return path.endswith("/environ") and _ENVIRONMENT.fullmatch(path) is not None


def tells_nothing(path: str) -> bool:
    """Returns whether nobody has to know that something at an absolute path was used."""
    if not is_systems_own(path):
        return False
    return not (is_environment(path) or any(folder in path for folder in PLACES_OF_PACKAGES))


def is_systems_own(path: str) -> bool:
    """Returns whether nothing at an absolute path, or in that folder if it ends in a separator, is a model's."""
    if path.startswith(_MEMORY):
        return path.startswith(_SIGNS_IN_MEMORY)
    return path.startswith(_prefixes())


@cache
def _prefixes() -> tuple[str, ...]:
    usr = (f"/usr/{name}" for name in _FOLDERS_OF_USR)
    run = (f"/run/{name}" for name in _FOLDERS_OF_RUN)
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    own = {f"{prefix}{os.sep}bin" for prefix in (sys.prefix, sys.base_prefix)}
    own |= {f"{sys.base_prefix}{os.sep}{name}" for name in ("lib", "include", "share")}
    return tuple(f"{folder}{os.sep}" for folder in (*_FOLDERS, *usr, *run, library, *sorted(own)))
