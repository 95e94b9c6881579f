"""The first minute with a model of one's own and the last minute of a bad morning, played as a person would.

A pseudo-terminal of 80 and of 160 columns, keys and all; what is on its screen is read back and kept beside the test's
folder (`screens/`) for a person to look at.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
GOOD = """
import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def net() -> torch.nn.Module:
    return Net()
"""
BAD = GOOD.replace("        return self.inner(x)", "        return self.inner(x) if x.sum() > 0 else x.sum()")
ROWS = 40
_ESCAPE = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|\][^\x07]*\x07|[=>])")


class Terminal:
    """A terminal of some columns in which commands are typed; what it shows is kept."""

    def __init__(self, folder: Path, columns: int) -> None:
        self.folder, self.columns = folder, columns
        self.screens = folder / "screens"
        self.screens.mkdir()

    def type(self, *words: str, interrupt_at: str = "") -> tuple[int, str]:
        """Runs a command; returns its exit code and what it said, escapes and overwritten live lines left out.

        Args:
            words: behind `python -m batch_export`.
            interrupt_at: Ctrl-C is typed when this is first seen.
        """
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self.columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "GITHUB_ACTIONS"):
            environment.pop(name, None)
        process = subprocess.Popen(
            [sys.executable, "-m", "batch_export", *words],
            cwd=self.folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen = b""
        while True:
            if not select.select([ours], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # nobody has the other end any more
                break
            if not chunk:
                break
            seen += chunk
            if interrupt_at and interrupt_at.encode() in seen:
                interrupt_at = ""
                process.send_signal(signal.SIGINT)
        os.close(ours)
        code = process.wait()
        said = shown(seen)
        number = len(list(self.screens.iterdir())) + 1
        (self.screens / f"{number:02}_{self.columns}.txt").write_text(f"$ {' '.join(words)}\n{said}\nexit {code}\n")
        return code, said


def shown(raw: bytes) -> str:
    """What is left on the screen: lines that a live view drew again and again count once, as they were last."""
    lines: list[str] = [""]
    row = 0
    position = 0
    text = raw.replace(b"\r\n", b"\n")
    while position < len(text):
        escape = _ESCAPE.match(text, position)
        if escape is not None:
            word = escape.group().decode("latin-1")
            if word.endswith("A"):
                row = max(0, row - int(word[2:-1] or 1))
            elif word.endswith("K"):
                lines[row] = ""
            position = escape.end()
            continue
        byte = text[position : position + 1]
        if byte == b"\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif byte == b"\r":
            lines[row] = "" if text[position + 1 : position + 2] not in (b"", b"\n") else lines[row]
        else:
            end = position
            while end < len(text) and text[end] not in b"\x1b\r\n":
                end += 1
            lines[row] += text[position:end].decode("utf-8", "replace")
            position = end
            continue
        position += 1
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.docs
@pytest.mark.parametrize("columns", [80, 160])
def test_the_first_and_the_last_minute(tmp_path: Path, columns: int) -> None:
    (tmp_path / "my_net.py").write_text(GOOD)
    terminal = Terminal(tmp_path, columns)
    quick = ("measure.enabled=false", "runner.n_jobs=1")

    code, said = terminal.type("new", "net", "--from", "my_net:nothing")
    assert (code, "module 'my_net' has no 'nothing'" in " ".join(said.split())) == (2, True)
    code, said = terminal.type("new", "net", "--from", "my_net:net")
    assert code == 0
    assert "x: {dtype: float32, shape: [batch, 8]}" in said
    following = said[said.index("python -m batch_export") :].replace("\n", " ").split()[3:]
    code, said = terminal.type(*(word.strip("'") for word in following), *quick)
    assert code == 0
    assert re.search(r"^net +static +✓", said, re.MULTILINE)
    assert re.search(r"^ +full +✓", said, re.MULTILINE)
    assert "2 cells: 2 pass" in said
    view = said.partition("outputs/")[0]  # paths are not broken, so that they can be copied
    assert all(len(line) <= columns for line in view.splitlines()), "nothing is wider than the terminal"

    (tmp_path / "my_net.py").write_text(BAD)
    code, said = terminal.type("--config-dir", "conf", "matrix.models=[net]", "matrix.dynamic=[static,full]", *quick)
    assert code == 1
    flat = " ".join(said.split())
    assert flat.count("2 fail") >= 1
    assert flat.count("my_net.py:") == 1, "one cause is told once, with the line of the model"
    assert "after 1 good run" in flat
    code, said = terminal.type("-q", "report", "latest")
    assert code == 1
    assert "my_net.py:" in said
    assert not re.search(r"^model +dynamic", said, re.MULTILINE), "-q leaves the table out"
    code, said = terminal.type("bisect", "net/full/opset20/cpu/core")
    assert code == 0
    assert "net/full/opset20/cpu/core" in said

    (tmp_path / "my_net.py").write_text(GOOD)
    code, said = terminal.type("--last-failed", *quick, "--config-dir", "conf", "matrix.models=[net]")
    assert code == 0
    assert "1 cell: 1 pass" in said
    code, said = terminal.type("history", "net/*")
    assert code == 0
    assert re.search(r"✓✗✓", said)


def test_what_a_live_view_drew_again_counts_once() -> None:
    raw = b"\x1b[?25lone\r\n1/2\x1b[1A\r\x1b[2Ktwo\n\r\x1b[2K2/2\r\n\x1b[32mdone\x1b[0m\r\n"
    assert shown(raw) == "two\n2/2\ndone\n"
