"""A long error keeps its next step, the line of the model and the line that tells most, whole."""

from __future__ import annotations

import pytest

from batch_export.stages.failures import short_line


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("x" * 400, "x"),
        ("x" * 401, "x..."),
        ("x" * 401 + ". Next step: write allow_guards: true", "x... Next step: write allow_guards: true"),
        ("x" * 300 + ". Next step: " + "y" * 300, "x... Next step: " + "y" * 300),
        ("x. Next step: " + "y" * 500, "y..."),
        ("x" * 401 + " (at net.py:7). Next step: write y", "x... (at net.py:7) Next step: write y"),
        ("x" * 401 + " (at net.py:7) and more", "x... (at net.py:7)"),
        ("x (at net.py:7) " + "y" * 401 + ". Next step: write z", "y... Next step: write z"),
    ],
)
def test_what_is_cut_and_what_is_not(text: str, end: str) -> None:
    said = short_line(text)
    assert said.endswith(end)
    assert len(said) <= 480


CONVERSION = """Failed to convert the program. \x1b[96mThis is step 3/3\x1b[0m of the export. Next steps:
- If a function is missing, write it.
- Debug the error and report it.

## Exception summary

<class 'somewhere.errors.DispatchError'>: No function found for aten.eig. Failure message: none registered
\u2b06\ufe0f
<class 'somewhere.errors.ConversionError'>: Error when translating node %eig
(Refer to the full stack trace above for more information.)"""

CHILD = """the child ended with an error:
Traceback (most recent call last):
  File "a.py", line 3, in <module>
    f()
ValueError: the width is odd"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            CONVERSION,
            "Failed to convert the program. This is step 3/3 of the export. Exception summary: DispatchError: "
            "No function found for aten.eig. Failure message: none registered",
        ),
        (CHILD, "the child ended with an error: ValueError: the width is odd"),
        (CHILD.partition("\n")[2], "ValueError: the width is odd"),
        ("!\n\nthe reason\nmore", "the reason"),
        ("\x1b[31;1mred\x1b[0m and \x1b]8;;http://a\x07link\x1b]8;;\x07", "red and link"),
        ("Violated (batch)!\n  - You fixed it to 4\n  - more", "Violated (batch)! - You fixed it to 4"),
        ("Branching\n  Explanation: on data\n  Hint: none", "Branching. Explanation: on data"),
        ("broken. Suggested fixes:\n  batch = 4", "broken."),
        ("Next steps:\n- none", "Next steps:"),
        ("---\n!", "(no message)"),
    ],
)
def test_of_several_lines_those_are_told_that_say_what_is_wrong(text: str, said: str) -> None:
    assert short_line(text) == said


def test_the_last_line_that_tells_stays_whole_and_what_announces_it_is_cut() -> None:
    reason = "the width has to be even, " * 15
    said = short_line("Tried with " + "a long list of things, " * 30 + "which gave:\n" + reason)
    assert said.endswith("... " + reason.strip())
    assert len(said) <= 480


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (
            "x" * 380 + " (at a/folder/of/net.py:17 in forward) " + "y" * 100,
            "x (at a/folder/of/net.py:17 in forward)...",
        ),
        ("x" * 300 + " (of " + "y" * 300 + ") z", "x..."),
        ("x" * 380 + " (at f(g(h(1)), net.py:17) and so on", "x..."),
        ("(" + "y" * 500, "y..."),
    ],
)
def test_no_cut_is_made_inside_parentheses(text: str, end: str) -> None:
    said = short_line(text)
    assert said.endswith(end)
    assert len(said) <= 480
