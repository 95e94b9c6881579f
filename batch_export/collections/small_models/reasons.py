"""Why no degree of shrinking gave a model: each reason once, with the first degree that it was met at.

Attempts run inside `noting`; the sentence that a skipped cell shows leaves as an `UndescribedError`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from batch_export.collections.small_models.calling import UndescribedError
from batch_export.words import class_and_line

_CHARACTERS = 300
"""Of one reason."""


class Reasons:
    """The reasons of failed attempts, in their order."""

    def __init__(self) -> None:
        self._degrees: dict[str, str] = {}

    @contextlib.contextmanager
    def noting(self, degree: str) -> Iterator[None]:
        """Context of an attempt: an error in it is a reason, and the next attempt may follow.

        Raises:
            UndescribedError: a library is not installed, which no other attempt changes.
        """
        try:
            yield
        except ImportError as error:
            first = " ".join(str(error).split()).partition(". ")[0]
            raise UndescribedError(f"it needs a library that is not installed: {first}") from error
        except Exception as error:
            words = " ".join(str(error).split()) if isinstance(error, UndescribedError) else class_and_line(error)
            self._degrees.setdefault(words, degree)

    def error(self) -> UndescribedError:
        """Returns all of them as one sentence to raise."""
        listed = (f"{degree}: {reason[:_CHARACTERS]}" for reason, degree in self._degrees.items())
        return UndescribedError("; ".join(listed))
