"""Twin of `batch_export/runner/system_folders.py`."""

from __future__ import annotations

import os
import sys

import pytest

from batch_export.runner.system_folders import is_systems_own


@pytest.mark.skipif(os.name != "posix", reason="there are no such paths")
@pytest.mark.parametrize(
    ("path", "systems"),
    [
        ("/dev/null", True),
        ("/dev/", True),
        ("/dev/shm/", False),
        ("/dev/shm/weights.pt", False),
        ("/dev/shm/sem.mp-1", True),
        ("/dev/shmem", True),
        ("/run/systemd/resolve/stub-resolv.conf", True),
        ("/run/media/somebody/drive/weights.pt", False),
        ("/run/user/1000/gvfs/weights.pt", False),
        ("/run/secrets/token", False),
        ("/media/drive/weights.pt", False),
        ("/mnt/weights.pt", False),
        ("/srv/weights.pt", False),
        ("/opt/weights.pt", False),
        ("/usr/local/weights.pt", False),
        ("/usr/share/zoneinfo/UTC", True),
        ("/etc/passwd", True),
        ("/library/weights.pt", False),
        (os.path.realpath(os.__file__), True),
        (sys.executable, True),
    ],
)
def test_what_is_the_systems_own(path: str, systems: bool) -> None:
    assert is_systems_own(path) == systems
