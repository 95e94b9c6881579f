"""`int(...)`, `len(...)`, `range(...)` and the like in a model's code: what they make of sizes are functions of these.

Arrives: a module, before torch captures it. Leaves: a context within which calls of some of Python's own functions in
the model's functions give symbolic numbers for symbolic ones, for tensors what `item()` gives, and lists of free length
for free sizes and tensors of them (`free_sequences.py`). Python itself would ask a size for the example's, and data for
what they say, before torch hears of it; so would some methods (`method_calls.py`). Only calls are changed: what a
function does with the types `int`, `list` and the others besides (`isinstance`, `dtype=int`) stays as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from batch_export.exporter.capture import (
    class_reads,
    comprehension_rewriting,
    either_kinds,
    free_loops,
    free_parts,
    free_pieces,
    free_sequences,
    joined_sequences,
    loop_calls,
    loop_choices,
    loop_code,
    loop_forms,
    loop_reads,
    loop_results,
    loop_rewriting,
    loop_rounds,
    loop_values,
    loop_windows,
    method_calls,
    number_elements,
    number_functions,
    number_lists,
    scalar_indices,
    step_numbers,
)
from batch_export.exporter.capture.kept_rows import rows_watched
from batch_export.exporter.capture.kinds import knows_torch, left_to_dynamo, reached, reached_by_loaded_classes
from batch_export.exporter.capture.named_loops import NUMBERS, Place, place_of, places_in

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_LOAD, _EXTENDED = dis.opmap["LOAD_GLOBAL"], dis.opmap["EXTENDED_ARG"]


def _number(convert: Callable[[Any], Any]) -> Callable[..., Any]:
    def converted(given: object) -> Any:
        if isinstance(given, torch.Tensor) and given.numel() == 1 and not given.is_complex():
            given = given.item()
        return convert(given) if isinstance(given, _SYMBOLIC) else None

    return converted


def _sequence_of(kind: type, one: Any) -> free_sequences.FreeSequence | None:
    if isinstance(one, free_pieces.FreePieces) and not one.is_plain:
        return one.as_other(kind)
    return free_sequences.sequence_of(kind, one)


_CALLED: Mapping[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "int": ("__int_of_a_size__", builtins.int, _number(torch.sym_int)),
    "float": ("__float_of_a_size__", builtins.float, _number(either_kinds.as_fraction)),
    "len": ("__len_of_a_size__", builtins.len, free_sequences.length_of),
    "list": ("__list_of_a_size__", builtins.list, functools.partial(_sequence_of, builtins.list)),
    "range": ("__range_of_a_size__", builtins.range, free_sequences.range_of),
    "sum": ("__sum_of_a_size__", builtins.sum, loop_calls.sum_of),
    "tuple": ("__tuple_of_a_size__", builtins.tuple, functools.partial(_sequence_of, builtins.tuple)),
}
"""Python's name -> its name here, Python's own function, and what gives something else than that one, or None."""


def _conversion(plain: Callable[..., Any], free: Callable[..., Any], made: list[object]) -> Callable[..., Any]:
    is_of_several = plain is builtins.range

    def converted(*args: Any, **options: Any) -> Any:
        result = free(*args) if (len(args) == 1 or (is_of_several and args)) and not options else None
        if result is None:
            return plain(*args, **options)
        made.append(result)
        return result

    return converted


def is_followed(made: Iterable[object]) -> bool:
    """Whether something is among what came of such calls that Python would not have made."""
    return any(not isinstance(one, free_sequences.FreeSequence) or not one.is_plain for one in made)


def _length(of: Any) -> Any:
    """The number of elements of a tensor where it goes by the data, and what `free_sequences.py` knows; or None."""
    if isinstance(of, torch.Tensor) and of.dim() and free_unbacked_symbols(of.shape[0]):
        return of.shape[0]
    return free_sequences.length_of(of)


@contextlib.contextmanager
def whole_numbers(
    module: torch.nn.Module,
    *,
    with_lengths: bool = False,
    are_free: bool = True,
    over_names: Collection[Place] = (),
) -> Iterator[list[object]]:
    """While open, such calls in a model's functions keep sizes free; gives what came of them.

    Args:
        module: the model.
        with_lengths: whether `len` of a tensor is no plain number where it goes by the data.
        are_free: whether there are free sizes at all, over which loops may go.
        over_names: functions whose loops over names go over slices of a tensor.
    """
    made: list[object] = []
    told = {name: _conversion(plain, free, made) for name, plain, free in _CALLED.values()}
    told.update({other: method_calls.told(name, made) for name, other in method_calls.NAMES.items()})
    told.update({loop_code.STEPS: free_loops.steps_of, loop_code.BEFORE: free_loops.before})
    told.update({loop_code.FREE: free_loops.free_loop, loop_values.TURNED: loop_calls.turned})
    told.update({loop_rounds.AS_SLICE: loop_calls.as_slice, loop_values.SCALED: step_numbers.scaled})
    told.update({loop_forms.NEW: loop_calls.new_list, loop_code.LIMITS: loop_calls.limits})
    told.update({loop_values.NUMBER_OF: loop_calls.number_of, loop_reads.AS_TENSOR: loop_calls.as_tensor})
    told[loop_reads.ELEMENT] = scalar_indices.element_of
    told[loop_code.LATER] = loop_windows.Later
    told.update({loop_forms.JOINED: loop_calls.joined, loop_forms.FINAL: loop_calls.final_count})
    told[loop_code.LAST] = loop_calls.last_step
    told.update(loop_results.CALLED)
    told.update({loop_choices.CHOSEN: loop_choices.chosen, loop_choices.NOT: loop_choices.does_not_hold})
    told[comprehension_rewriting.MAPPED] = free_pieces.mapped
    told.update({number_lists.LISTED: number_elements.listed, number_lists.CALLED: number_functions.called})
    told.update({number_lists.CHOSEN: number_functions.chosen, number_lists.TAKEN: number_elements.taken})
    if with_lengths:
        told[_CALLED["len"][0]] = _conversion(builtins.len, _length, made)
    plainly = {name: plain for name, plain, _ in _CALLED.values()}
    plainly.update({other: method_calls.plainly(name) for name, other in method_calls.NAMES.items()})
    before = [(one, one.__code__, one.__globals__) for one in reached(module)]
    codes = [(one, code, names, _as_told(code, names, are_free, over_names)) for one, code, names in before]
    changed = [(one, code, names) for one, code, names, other in codes if other is not code]

    def tell(answers: Mapping[str, Callable[..., Any]]) -> None:
        for _, _, names in changed:
            names.update(answers)

    try:  # from here on: an interrupt may come at any line
        for one, code, names, other in codes:
            if other is not code:
                one.__code__ = other
                names.update(told)
        parts = free_parts.parts_of_free_axes(made) if are_free else contextlib.nullcontext()
        lists = free_pieces.lists_of_data(made) if are_free or with_lengths else contextlib.nullcontext()
        known = left_to_dynamo(lambda: tell(plainly), lambda: tell(told))
        with rows_watched(), joined_sequences.joining(), lists, parts, known:
            yield made
    finally:
        for one, code, names in changed:
            one.__code__ = code
            for name in told:
                names.pop(name, None)


_MADE: dict[tuple[int, frozenset[str], bool, frozenset[Place]], tuple[CodeType, CodeType]] = {}
"""By a code's identity, the names that its file has for itself, whether sizes are free and which functions in it have
loops over names that are looked through: that code, which has to live on, and the new one."""


def _as_told(code: CodeType, own: Mapping[str, object], are_free: bool, over_names: Collection[Place]) -> CodeType:
    """A code with these calls, and with the reads of classes that it has already: its source is known without them."""
    written = class_reads.as_written(code)
    made = _with_calls(written, own, are_free, over_names)
    return made if written is code else class_reads.with_reads(made)


def _with_calls(code: CodeType, own: Mapping[str, object], are_free: bool, over_names: Collection[Place]) -> CodeType:
    """The same code with these calls in place of Python's; the code itself where there are none."""
    looked_through = frozenset(over_names).intersection(places_in(code)) if over_names else frozenset()
    numbered = frozenset(one for one in over_names if one[0] == code.co_filename and one[2] == NUMBERS)
    key = id(code), frozenset(name for name in _CALLED if name in own), are_free, looked_through | numbered
    if key not in _MADE:
        is_listed = are_free and "range" not in own and _may_be_of_tensors(code, own)
        listed = number_lists.with_numbers(code) if is_listed else code
        mapped = comprehension_rewriting.with_maps(listed) if are_free else listed
        is_looked_through = mapped is listed and is_listed
        rounds = mapped
        if is_looked_through:
            lines = frozenset(line for _, line, _ in numbered)
            rounds = loop_rewriting.with_rounds(mapped, over_names=place_of(code) in over_names, numbered=lines)
        _MADE[key] = code, _made(rounds, own, are_free, over_names)
    return _MADE[key][1]


_KNOWING: dict[int, tuple[Mapping[str, object], bool]] = {}
"""By the identity of a file's names those names, which have to live on, and whether torch is among them."""


def _may_be_of_tensors(code: CodeType, own: Mapping[str, object]) -> bool:
    """Whether a function may go over tensors: of installed files only those that know torch, which few do."""
    if "site-packages" not in code.co_filename:
        return True
    if id(own) not in _KNOWING:
        _KNOWING[id(own)] = own, knows_torch(own)
    return _KNOWING[id(own)][1]


def prepare() -> None:
    """Reads ahead what models of the loaded classes may come to, with free sizes: it takes half a second at first."""
    for one in reached_by_loaded_classes():
        _as_told(one.__code__, one.__globals__, True, ())


def _made(code: CodeType, own: Mapping[str, object], are_free: bool, over_names: Collection[Place]) -> CodeType:
    if code.co_name.startswith(loop_code.BODY):  # dynamo reads it
        return code
    wanted = {name: other for name, (other, *_) in _CALLED.items() if name in code.co_names and name not in own}
    places = {code.co_names.index(name): other for name, other in wanted.items()}
    names, words = list(code.co_names), bytearray(code.co_code)
    for at in range(0, len(words), 2) if places else ():
        place, is_called = divmod(words[at + 1], 2)  # called at once where the argument is odd
        is_long = at > 0 and words[at - 2] == _EXTENDED
        if words[at] != _LOAD or is_long or not is_called or place not in places:
            continue
        if places[place] not in names:
            names.append(places[place])
        new = names.index(places[place])
        if new < method_calls.WIDE:
            words[at + 1] = new * 2 + 1
    if are_free:
        method_calls.redirected(words, names)
    constants = tuple(
        _with_calls(one, own, are_free, over_names) if isinstance(one, CodeType) else one for one in code.co_consts
    )
    is_same = bytes(words) == code.co_code and all(map(lambda one, other: one is other, constants, code.co_consts))
    return code if is_same else code.replace(co_names=tuple(names), co_code=bytes(words), co_consts=constants)
