"""An import inside a function hides what a module stands on, so each says why it is not at the top: `# lazy: ...`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "batch_export"


def groups(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Import statements that follow each other directly, in a block and in all blocks below it."""
    group: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            group.append(node)
            continue
        if group:
            yield group
            group = []
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for member in getattr(node, name, ()):
                if isinstance(member, ast.ExceptHandler | ast.match_case):
                    yield from groups(member.body)
            below = [member for member in getattr(node, name, ()) if isinstance(member, ast.stmt)]
            yield from groups(below)
    if group:
        yield group


def unexplained(text: str) -> list[int]:
    """Lines of imports in functions whose group gives no reason."""
    lines = text.split("\n")
    found: set[int] = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for group in groups(function.body):
                if not any("# lazy: " in line for line in lines[group[0].lineno - 1 : group[-1].end_lineno]):
                    found.add(group[0].lineno)
    return sorted(found)


def test_the_search_sees_every_block() -> None:
    text = """
def f():
    try:
        import a
    except E:
        import b  # lazy: why
        import c
    import d
"""
    assert unexplained(text) == [4, 8]


def test_every_import_in_a_function_says_why() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in unexplained(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"move these to the top of the file, or say why not with `# lazy: <reason>`: {found}"
