"""What is told of one error code, and how it reads as text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an example is: each kind is executed in its own way by the tests, and introduced by its own words."""

    PYTHON = "Python that raises it:"
    COMMAND = "A command that ends with it:"
    MODEL = "A model (builder `build`, input `input: float32[batch, 4]`) whose cells end with it:"
    WORDS = "How it comes about:"
    EXPORTER = "An exporter plug-in (`_target_: module.write`) whose cells end with it:"


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code.

    Attributes:
        code: `BE` and three digits; the first one names the area.
        name: the exception's class, or the class of a failure as records have it.
        title: what happened, in one line without a full stop.
        cause: why it happens.
        kind: of the example.
        example: the least that fails like this.
        fix: what to do about it.
        config: further lines of the example's YAML config.
        also: other classes under which records have it: of a library that has its own.
    """

    code: str
    name: str
    title: str
    cause: str
    kind: Kind
    example: str
    fix: str
    config: str = ""
    also: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns it for a terminal, without a line end."""
        return "\n".join(
            (
                f"{self.code} {self.name}: {self.title}",
                "",
                textwrap.fill(self.cause, 79),
                "",
                self.kind.value,
                "",
                textwrap.indent(self._example(), "    "),
                "",
                textwrap.fill(f"Fix: {self.fix}", 79),
            )
        )

    def markdown(self) -> str:
        """Returns it as a section of `docs/errors.md`, without a line end."""
        language = "text" if self.kind in (Kind.COMMAND, Kind.WORDS) else "python"
        return "\n".join(
            (
                f"### {self.code} {self.name}",
                "",
                f"{self.title}.",
                "",
                textwrap.fill(self.cause, 119),
                "",
                self.kind.value,
                "",
                f"```{language}",
                self._example(),
                "```",
                "",
                textwrap.fill(f"**Fix.** {self.fix}", 119),
            )
        )

    def _example(self) -> str:
        config = "".join(f"# in the config: {line}\n" for line in self.config.splitlines())
        return config + self.example.strip()
