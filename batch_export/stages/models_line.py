"""The line of a model at which somebody else's exporter failed: an exception and the module arrive, `file:line` leaves.

Our own exporter says it itself. Of others the traceback does, or the text of torch's errors, which quote the line.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from types import CodeType

import torch

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


def models_line(error: BaseException, module: torch.nn.Module) -> str:
    """Returns the innermost line of the model, or of what it calls, that an error passed through; empty: none.

    An exporter may have lines of its own in the traceback: those count that come after a `forward` of the model.
    """
    forwards = {code for part in module.modules() if (code := _code_of(part)) is not None}
    forwards = {code for code in forwards if not is_torchs(code.co_filename)}
    for one in _chain(error):
        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(one.__traceback__)]
        inside = next((place for place, (code, _) in enumerate(frames) if code in forwards), len(frames))
        own = [(code.co_filename, line) for code, line in frames[inside:] if not is_torchs(code.co_filename)]
        if own:
            return "{}:{}".format(*own[-1])
    files = {code.co_filename for code in forwards}
    for one in _chain(error):
        quoted = [found for found in _FRAME.finditer(str(one)) if found["file"] in files]
        if quoted:
            return f"{quoted[-1]['file']}:{quoted[-1]['line']}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, newest first."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _code_of(part: torch.nn.Module) -> CodeType | None:
    return getattr(getattr(part, "forward", None), "__code__", None)


def is_torchs(file: str) -> bool:
    """Whether a file belongs to torch or to Python, not to a model or a library of models."""
    return file.startswith(("<", _TORCH)) or (file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file)
