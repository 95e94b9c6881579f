"""What all tests share: markers, one thread per process, and settings of torch that no test leaves to the next one."""

from __future__ import annotations

import os
import sys
import zlib

import pytest

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch and numpy are imported; two test processes share two cores

ONE_OF = 12
"""Of a file that is marked `sampled`, one test of so many is run by the session `tests`."""


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    config.addinivalue_line(
        "markers", "slow: takes more than ten seconds, e.g. a whole sweep; deselect with -m 'not slow'"
    )
    config.addinivalue_line("markers", "zoo: needs the extra `zoo` (transformers); skipped where it is missing")
    config.addinivalue_line("markers", "gpu: needs a CUDA device and onnxruntime-gpu; skipped where they are missing")
    config.addinivalue_line("markers", "faults: the long form of the fault suite; only with -m faults")
    config.addinivalue_line("markers", "ops: rarer architectures, long reproductions; session ops, only with -m ops")
    config.addinivalue_line(
        "markers", f"sampled: a file of many alike; one test of {ONE_OF} here, the others are marked ops"
    )
    config.addinivalue_line("markers", "nightly: real nights, run by the nox session nightly; only with -m nightly")
    config.addinivalue_line(
        "markers", "world: many types of collections, run by the nox session world; only with -m world"
    )
    config.addinivalue_line(
        "markers", "docs: commands of the documentation, run by the nox session docs; only with -m docs"
    )
    config.addinivalue_line("markers", "runtimes: those in environments of their own; only with -m runtimes")


@pytest.hookimpl(tryfirst=True)  # before pytest itself reads the marks for -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what another session of nox runs, unless it is asked for; files with slow tests come first.

    The processes share the files out in this order, so that none waits long for the last one of another.
    """
    for item in items:
        if item.get_closest_marker("sampled") and zlib.crc32(item.nodeid.encode()) % ONE_OF:
            item.add_marker("ops")  # always the same ones: a test that fails today is there tomorrow
    asked = config.getoption("markexpr")
    left_out = [name for name in ("faults", "ops", "nightly", "runtimes", "world", "docs") if name not in asked]
    kept = [item for item in items if not any(map(item.get_closest_marker, left_out))]
    config.hook.pytest_deselected(items=[item for item in items if any(map(item.get_closest_marker, left_out))])
    slow = {item.path for item in kept if item.get_closest_marker("slow")}
    items[:] = sorted(kept, key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def same_random_numbers(request: pytest.FixtureRequest) -> None:
    """A test's random tensors are the same ones every time, whichever tests ran before it, and other tests' are others.

    Half precision is within its tolerance for nearly all numbers: one run in hundreds would fail.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def fast_path_of_attention() -> None:
    """Every test begins with torch's fast path of attention, which steps switch off for good in a child.

    On an empty input it gives no weights, so that a model's limits go by it.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].backends.mha.set_fastpath_enabled(True)
