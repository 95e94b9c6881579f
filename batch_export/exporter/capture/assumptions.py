"""Programs that were captured under assumptions about data: run against the model before anyone gets them.

Arrives: a program, the strategy that captured it, the model and its example inputs. Leaves: nothing when program and
model agree at the example inputs and at others of the same sizes; an error that names the inputs otherwise.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture.captured import Attempt, Captured
from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.other_inputs import Inputs, extreme_values, one_apart, other_digits, other_values
from batch_export.exporter.capture.other_sizes import at_numbers, other_sizes
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.seeded_numbers import drawing_nodes
from batch_export.exporter.capture.strategies import Assumption
from batch_export.exporter.capture.trial import Outcome, is_fake, share_apart, tried
from batch_export.exporter.graph.metadata import source_location

_OTHERS = 8
"""Further inputs that a program is run at."""
_STEP = 3
"""Where axes are free it is run at one of so many other sizes, too."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NUMBERS = 16
"""How many of the numbers in a function are taken for sizes, the smallest ones."""
_LARGEST = 1024
_ADVICE = "compute with torch.where or torch.cond in place of Python's if, and with tensors in place of .item()"


def refused(assumptions: Sequence[Assumption], attempts: Sequence[Attempt] = ()) -> CaptureError:
    """The error for a program that nobody said may take something for granted."""
    first = assumptions[0]
    more = "".join(f"; also {one.text}" for one in assumptions[1:3])
    why = _first_reason(attempts)
    more += f"; it cannot be captured both ways: {why}" if why and not first.sizes else ""
    if first.sizes:
        return CaptureError(
            "the model could not be captured for all sizes: what it decides by the size "
            f"{' and '.join(first.sizes)} would stay as it is in the example: {first.condition}{more}",
            attempts=tuple(attempts),
            source=first.source or None,
            next_step="compute with whole numbers (`//`, `%`, `*`), leave that axis out of dynamic_shapes, or pass "
            "guards='allow' (guards: allow in the model's config) to keep what the example's size decides",
        )
    return CaptureError(
        "the model could not be captured for all data: a data-dependent decision would stay as it is in the example: "
        f"{first.condition}{more}",
        attempts=tuple(attempts),
        source=first.source or None,
        next_step=f"{_ADVICE}, or pass guards='allow' (guards: allow in the model's config) to keep what the "
        "example inputs decide, in the model's metadata",
    )


def why_one_way(error: CaptureError | DynamicShapeError) -> str:
    """Why decisions were not captured both ways, where an error knows."""
    tried = [one for one in getattr(error, "attempts", ()) if isinstance(one, Attempt)]
    return _first_reason(tried) or _one_way_only(error)


def _first_reason(attempts: Sequence[Attempt]) -> str:
    return next(filter(None, (_one_way_only(one.exception) for one in attempts)), "")


def _one_way_only(error: BaseException | None) -> str:
    """Why decisions were not captured both ways, where that is known."""
    while error is not None and not isinstance(error, OneWayOnlyError):
        error = error.__cause__ or error.__context__
    return str(error or "")


def check(
    strategy: str,
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    assumptions: Sequence[Assumption],
) -> None:
    """Runs program and model at the example inputs and at others.

    Raises:
        CaptureError: at the first inputs at which they differ, or when the model has no weights to run with.
    """
    because = f"; it took for granted {assumptions[0].condition}" if assumptions else ""
    source = assumptions[0].source if assumptions else None
    if is_fake(module, args, kwargs):
        raise CaptureError(
            f"only {strategy} could capture the model, and what it captured cannot be checked without weights{because}",
            source=source or None,
            next_step="export the model with its weights",
        )
    as_module = program.module(check_guards=False)
    for where, given, keywords in _inputs_to_try(args, kwargs):
        trial = tried(as_module, module, given, keywords)
        problem = trial.problem
        if trial.outcome is Outcome.NOTHING:
            problem = "none of the model's numbers is finite, so that agreement proves nothing"
        elif trial.outcome is Outcome.REFUSED:  # elsewhere than at the example it may
            problem = f"the model itself fails: {problem}" if given is args else ""
        if problem:
            raise CaptureError(
                f"the program that {strategy} captured is not the model: at {where} {problem}{because}",
                source=source or None,
                next_step=_ADVICE,
            )


def _inputs_to_try(
    args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Iterator[tuple[str, tuple[object, ...], dict[str, object]]]:
    """The example inputs and others like them, each with the words for it."""
    yield "the example inputs", args, dict(kwargs)
    for turn, (given, keywords) in enumerate(other_values(args, kwargs, _OTHERS), 1):
        yield f"random inputs like the example's (number {turn})", given, keywords


def some_sizes(
    captured: Captured, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Iterator[tuple[str, Inputs]]:
    """Inputs at a few other sizes that the program's guards allow, with the words for them."""
    for words, inputs in itertools.islice(other_sizes(captured, args, kwargs), 1, None, _STEP):
        yield f"other sizes ({words})", inputs


def sizes_named(
    captured: Captured, args: tuple[object, ...], kwargs: Mapping[str, object], lines: Iterable[str]
) -> Iterator[tuple[str, Inputs]]:
    """Inputs at the sizes that the functions at some lines (`file:line`) name as numbers, with the words for them."""
    numbers = {number for line in dict.fromkeys(lines) for number in _numbers_at(line)}
    for words, inputs in at_numbers(captured, args, kwargs, sorted(numbers)[:_NUMBERS]):
        yield f"other sizes ({words})", inputs


def _numbers_at(place: str) -> Iterator[int]:
    file, _, line = place.rpartition(":")
    tree = parsed(file)
    around = [one for one in ast.walk(tree) if isinstance(one, _FUNCTIONS)] if tree and line.isdecimal() else []
    for one in around:
        if one.lineno <= int(line) <= (one.end_lineno or one.lineno):
            values = (part.value for part in ast.walk(one) if isinstance(part, ast.Constant))
            yield from (value for value in values if type(value) is int and 0 < value <= _LARGEST)


def _elsewhere(several: Iterable[tuple[str, Inputs]]) -> Iterator[tuple[str, tuple[object, ...], dict[str, object]]]:
    return ((where, *inputs) for where, inputs in several)


def check_both_ways(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    decisions: Sequence[str],
    elsewhere: Iterable[tuple[str, Inputs]] = (),
) -> None:
    """Runs a program that chooses by data, and the model, at inputs that may lead either way.

    Args:
        program, module, args, kwargs: both, and the example.
        decisions: what is chosen by, in words.
        elsewhere: further inputs, and the words for them.

    Raises:
        CaptureError: where the model runs, and the program does not or gives something else.
    """
    if is_fake(module, args, kwargs):
        return
    as_module = program.module(check_guards=False)
    extremes = (("inputs at their extremes", *one) for one in extreme_values(args, kwargs))
    for where, given, keywords in itertools.chain(_inputs_to_try(args, kwargs), extremes, _elsewhere(elsewhere)):
        trial = tried(as_module, module, given, keywords)
        if trial.outcome in (Outcome.FAILS, Outcome.DIFFERS):
            raise CaptureError(
                f"the program with both ways of a decision by data is not the model: at {where} {trial.problem}; it "
                f"chooses by {' and '.join(decisions[:3]) or 'nothing'}",
                next_step=_ADVICE,
            )


def difference(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    elsewhere: Iterable[tuple[str, Inputs]] = (),
) -> str:
    """Returns in what a program is not the model, at the example inputs and at further ones; nothing where it is.

    What is a share of the numbers of 1e-3 at the most may be roundings of many rounds. Where torch cannot run the
    program nothing is said of it: not all that a file may be is one of its programs.
    """
    if is_fake(module, args, kwargs):
        return ""
    as_module = program.module(check_guards=False)
    for where, given, keywords in itertools.chain([("the example inputs", args, kwargs)], _elsewhere(elsewhere)):
        trial = tried(as_module, module, given, keywords)
        if trial.outcome is Outcome.DIFFERS and share_apart(as_module, module, given, keywords) > _SHARE:
            return f"at {where} {trial.problem}"
    return ""


_SHARE = 1e-3


def check_rounds(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    elsewhere: Iterable[tuple[str, Inputs]] = (),
) -> None:
    """Runs a program with loops as operators, and the model: what a round reads in other ways than by names is not seen
    where loops are written anew.

    Raises:
        CaptureError: where the model runs, and the program does not or gives something else.
    """
    if problem := difference(program, module, args, kwargs, elsewhere):
        if drawing := drawing_nodes(program):
            raise CaptureError(
                "a loop of the model over a free size draws random numbers, which come in another order in the loop of "
                "a program, so that the two cannot be compared",
                source=next(filter(None, map(source_location, drawing)), None),
                next_step="draw the numbers of all rounds before the loop (`noise = torch.randn(n, ...)`, a row for "
                "each round), export the model in eval mode, or leave that axis out of dynamic_shapes",
            )
        raise CaptureError(
            f"a loop of the model over a free size is no operator of the file: {problem}",
            next_step="hand what a round changes to the functions that read it, in place of reading it by another name",
        )


def of_assertions(program: torch.export.ExportedProgram) -> Assumption | None:
    """A size that goes by the data and that torch took for a certain number, to repeat a tensor or not to.

    torch asserts it when its own program runs; a file has no assertions, and the model may take other numbers too.
    """
    for node in program.graph.nodes:
        if node.target is not torch.ops.aten._assert_scalar.default or len(node.args) < 2:
            continue
        told = _OF_TORCH.match(str(node.args[1]))
        if told is not None and _EQUALITY.match(told[1]):
            step = "name the size by torch._check, or give the tensor a size that does not go by the data"
            return Assumption(f"`{told[1]}` of a size that the data decide", next_step=step)
    return None


def of_reading(name: str) -> Assumption:
    """Numbers that Python read of a tensor that forward writes to: torch may have read them before the write."""
    step = "write to a copy (`.clone()`) of that tensor, or make it a buffer"
    return Assumption(f"what Python reads of `{name}`, to which forward writes", next_step=step)


def of_text(line: str) -> Assumption:
    """Text that the model's code makes of data: in a capture it is none of them."""
    return Assumption(_TEXT, line, "compute with numbers in place of their text; a file has no text of them")


def of_identity(line: str) -> Assumption:
    """What is compared by identity: an answer about free sizes is neither True nor False itself in a capture."""
    return Assumption(
        "that what is compared by identity is no answer about sizes", line, "ask `if same:` in place of `is`"
    )


def of_call(line: str) -> Assumption:
    """What fails in a capture, or is answered otherwise there: a tensor has no numbers and no memory."""
    return Assumption(
        "what this line finds in a capture, where tensors have no numbers",
        line,
        "keep what needs a tensor's numbers or memory out of forward",
    )


_TEXT = "text that the model's code makes of data"
_OF_TORCH = re.compile(r"Runtime assertion failed for expression (.+) on node ")
_EQUALITY = re.compile(r"(Eq|Ne)\([^,]+, \d+\)$")
"""Between two such sizes runtimes repeat a tensor of one element as torch does."""


def check_assertion(
    strategy: str,
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    taken: Assumption,
    elsewhere: Iterable[tuple[str, Inputs]] = (),
) -> None:
    """Runs a program with such an assertion, and the model, at the example inputs and at others like them.

    Args:
        strategy: what captured it.
        program, module, args, kwargs: both, and the example.
        taken: what the program takes for granted.
        elsewhere: further inputs, and the words for them.

    Raises:
        CaptureError: where the model runs, and the program does not or gives something else.
    """
    if is_fake(module, args, kwargs):
        return
    as_module = program.module(check_guards=False)
    as_module.graph.eliminate_dead_code()  # a call that failed is still there
    as_module.recompile()
    if taken.condition == _TEXT:
        others = (("inputs of one number", *one) for one in other_digits(args, kwargs))
    else:
        others = (("inputs of which one element decides otherwise", *one) for one in one_apart(args, kwargs))
    for where, given, keywords in itertools.chain(_inputs_to_try(args, kwargs), others, _elsewhere(elsewhere)):
        trial = tried(as_module, module, given, keywords)
        if trial.outcome in (Outcome.FAILS, Outcome.DIFFERS):
            raise CaptureError(
                f"the program that {strategy} captured is not the model: at {where} {trial.problem}; it took for "
                f"granted {taken.condition}",
                source=taken.source or None,
                next_step=taken.next_step,
            )
