"""Malformed input: configurations, records and stores that nobody would write on purpose, and hypothesis would."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from faults.scene import TESTS, Fault, Outcome

YAML = {
    "a file that is not YAML": "a: [1, 2\nb: {",
    "YAML with tabs": "_target_: a.b\n\tinputs: 1\n",
    "YAML with a Python object": "!!python/object/apply:os.system ['true']",
    "YAML that is a list": "- 1\n- 2\n",
    "YAML that is empty": "",
    "YAML that is not text": "\x00\x01\x02",
    "YAML that refers to itself": "a: &x [*x]\n_target_: a.b\n",
    "YAML nested a thousand times": "a: " + "[" * 1000 + "]" * 1000,
}


def faults() -> list[Fault]:
    """All faults of this family."""
    return [
        Fault(name, "input", functools.partial(_config, text), quick=index < 2)
        for index, (name, text) in enumerate(YAML.items())
    ]


def _config(text: str, folder: Path) -> Outcome:
    models = folder / "conf" / "model"
    models.mkdir(parents=True)
    (models / "odd.yaml").write_bytes(text.encode())
    done = subprocess.run(
        [sys.executable, "-m", "batch_export", "plan", "--config-dir", str(folder / "conf"), "matrix.models=[odd]"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        check=False,
        timeout=60,
    )
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert lines[-1].startswith("error: "), done.stderr
    return Outcome("exit 2: one sentence", "nothing was run")
