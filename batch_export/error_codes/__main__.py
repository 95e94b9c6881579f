"""`python -m batch_export.error_codes`: prints docs/errors.md."""

from __future__ import annotations

from batch_export.error_codes import EXPLANATIONS

_AREAS = {
    "1": "Configuration, models, folders",
    "2": "Exporting and running a file",
    "3": "A file that is not what was asked for",
    "4": "A file that does not agree with eager PyTorch",
    "5": "Actions that did not finish by themselves",
}
_HEAD = """# Errors

Every class of error and every class of a failed cell has a code that keeps its meaning.
`python -m batch_export explain BE201` prints one in the terminal; a class name (`explain CaptureError`,
`explain SIGSEGV`) does too. In Python `batch_export.error_codes.code_of(type(error))` is the code. A class that is not
listed here was raised by the model's own code or by a library.

This page is written by `python -m batch_export.error_codes > docs/errors.md`; a test executes the examples.
"""


def page() -> str:
    """Returns docs/errors.md."""
    parts = [_HEAD]
    area = ""
    for one in EXPLANATIONS:
        if one.code[2] != area:
            area = one.code[2]
            parts.append(f"## {_AREAS[area]}\n")
        parts.append(one.markdown() + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
