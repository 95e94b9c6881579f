"""Repeated blocks: layers that are alike are captured twice, and written down for all others.

A deep model is the same layer again and again. While `sharing` is open, a call of a submodule whose class, weights'
shapes and ties, configuration and inputs (in symbols) are those of an earlier call is not traced: one node stands for
the nodes of the earlier call, on this one's inputs and weights, until torch is done with the graph. Within a call that
is recorded itself the nodes are written again one by one. The second call of a kind is always traced as well and
compared with the first, node by node; a kind that fails this, or that does more than compute (hooks, writes to what it
is given, a cache, sizes by data), is traced every time.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import _AttrProxy

from batch_export.exporter.capture import (
    alike,
    block_agreement,
    block_copies,
    block_expansion,
    block_recording,
    block_state,
    restored_weights,
)
from batch_export.exporter.capture.begun_anew import begun_anew
from batch_export.exporter.capture.block_recording import NotSharedError
from batch_export.exporter.capture.hidden_weights import HiddenWeights, hidden_weights

if TYPE_CHECKING:  # a private name, which another torch may not have
    from torch.fx.experimental.proxy_tensor import _ModuleStackTracer as Tracer

_LEAST = 3
"""Calls from which on it is worth while: two are traced."""


@dataclass(slots=True)
class Block:
    """A kind of block and what was shared of it.

    Attributes:
        kind: the class's name.
        traced: paths of the modules that were traced.
        stamped: paths of the modules that an earlier one's nodes were written for.
        reason: why it was traced every time, when it was.
    """

    kind: str
    traced: list[str] = field(default_factory=list)
    stamped: list[str] = field(default_factory=list)
    reason: str = ""


@dataclass(slots=True)
class _Known:
    """What is known of the calls of one key: recordings, and whether a second call wrote the same nodes."""

    recording: block_recording.Recording
    read: frozenset[alike.Place]
    owner: torch.nn.Module
    confirmed: bool = False


class _Sharing:
    """What is known while one model is captured.

    Attributes:
        blocks: id of a group -> what is told of it.
        recordings: those that stand for other calls as one node, by number.
        copies: how many nodes stand for a whole block.
    """

    def __init__(self, model: torch.nn.Module, *, whole: bool, hides: bool) -> None:
        self._whole = whole
        self._recording = 0
        self.recordings: dict[int, block_recording.Recording] = {}
        self.copies = 0
        self._groups = alike.groups(model)
        self.hidden = hidden_weights(model, self._groups) if hides else HiddenWeights()
        self.reads = alike.Reads(model, self._groups)
        self._earlier = block_state.Earlier()
        moment = block_state.Moment(self._earlier)
        self._settings = {at: block_state.settings(one, moment) for at, one in self._members().items()}
        self._tensors: dict[int, block_state.State] = {}
        self._known: dict[Hashable, list[_Known]] = defaultdict(list)
        self._called: dict[int, int] = defaultdict(int)
        self.blocks: dict[int, Block] = {}

    def _members(self) -> dict[int, torch.nn.Module]:
        groups = {id(one): one for one in self._groups.values() if not one.reason}.values()
        return {id(one): one for group in groups for one in group.members.values()}

    def _require_unchanged(self, base: torch.nn.Module) -> None:
        """Looks whether a block finds what stood there when the blocks were compared, before the capture.

        Raises:
            NotSharedError: forward, or what it calls, has changed it.
        """
        if not self._tensors:
            known: dict[int, Mapping[str, object]] = {}
            self._tensors = {at: block_state.tensors(one, known) for at, one in self._members().items()}
        now = block_state.settings(base, block_state.Moment(self._earlier))
        name = block_state.changed(self._settings.get(id(base), {}), now)
        name = name or block_state.changed(self._tensors.get(id(base), {}), block_state.tensors(base))
        if name:
            raise NotSharedError(f"{name} changes while the model runs")

    def call(
        self,
        tracer: Tracer,
        module: torch.nn.Module,
        proceed: Callable[[], object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        base: torch.nn.Module = module.get_base() if isinstance(module, _AttrProxy) else module  # type: ignore[operator]
        group = self._groups.get(id(base))
        if group is None:
            return proceed()
        path = tracer.path_of_module(module)
        self._called[id(base)] += 1
        if len(group.members) < _LEAST and self._called[id(base)] == 1:
            return proceed()
        block = self.blocks.setdefault(id(group), Block(type(base).__name__))
        absent = self.hidden.of(base)
        try:
            group.reason = group.reason or alike.changed_call(base)  # a forward may register hooks on its way
            if group.reason:
                raise NotSharedError(group.reason)
            with self._aside(absent):
                self._require_unchanged(base)
                call = block_recording.described_call(args, kwargs, tracer)
                ties = block_recording.ties(base, call, tracer)
                key = (id(group), call.key, ties, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
                fitting = [one for one in self._known[key] if alike.agree(one.owner, base, one.read)]
                known = next((one for one in fitting if one.confirmed), None)
                if known is not None:
                    block_copies.require_weights(known.recording, base, tracer, absent)
        except NotSharedError as error:
            self.hidden.give(base)
            block.reason = block.reason or str(error)
            block.traced.append(path)
            return proceed()
        if known is not None:
            block.stamped.append(path)
            self.reads.noted |= {(id(vars(base.get_submodule(where))), name) for where, name in known.read}
            return self._copied(known.recording, path, base, call, tracer, absent)
        self.hidden.give(base)
        return self._traced(tracer, base, path, proceed, args, kwargs, call, key, fitting, group, block)

    @contextlib.contextmanager
    def _aside(self, absent: Mapping[str, str]) -> Iterator[None]:
        """While open, tensors are looked at without torch's modes, which take their time for each look."""
        with torch._C.DisableTorchFunction(), self.hidden.unseen() if absent else contextlib.nullcontext():
            yield

    def _copied(
        self,
        recording: block_recording.Recording,
        path: str,
        base: torch.nn.Module,
        call: block_recording.Call,
        tracer: Tracer,
        absent: Mapping[str, str],
    ) -> object:
        """The result of a call that is not traced: one node, but in a recording the nodes themselves."""
        whole = self._whole and not self._recording and recording.may_be_one
        if not whole or recording.returns_one_of(absent):
            self.hidden.give(base)
            absent = {}
        if whole:
            self.recordings[recording.number] = recording
            self.copies += 1
        with self._aside(absent):
            return block_copies.written(recording, path, base, call, tracer, whole=whole, absent=absent)

    def _traced(
        self,
        tracer: Tracer,
        base: torch.nn.Module,
        path: str,
        proceed: Callable[[], object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        call: block_recording.Call,
        key: Hashable,
        fitting: list[_Known],
        group: alike.Alike,
        block: Block,
    ) -> object:
        block.traced.append(path)
        outer_reads = set(self.reads.noted)
        self.reads.noted.clear()
        self._recording += 1
        last = tracer.graph._root.prev
        before = dict(tracer.num_calls)
        of_weights = block_recording.weights(base, tracer)
        try:
            result = proceed()
        finally:
            self._recording -= 1
        try:
            if list(map(id, block_recording.leaves(args, kwargs))) != list(map(id, call.leaves)):
                raise NotSharedError("it changes a list or dict that it is given")
            recording = block_recording.recorded(
                path, base, call, of_weights, result, block_recording.written_since(last, tracer.graph), tracer
            )
            recording.calls = {
                where[len(path) + 1 :]: (before.get(where, 0), after)
                for where, after in tracer.num_calls.items()
                if where == path or where.startswith(f"{path}.")
            }
            self._require_unchanged(base)
            read = alike.read_places(base, group, self.reads.noted)
            for known in fitting:
                known.confirmed = block_agreement.equal(known.recording, recording) and read == known.read
                if not known.confirmed:
                    self._known[key].remove(known)
                    raise NotSharedError("two calls that look alike wrote different nodes")
                known.recording, known.owner = recording, base
                recording.confirm()
            if not fitting:
                self._known[key].append(_Known(recording, read, base))
        except NotSharedError as error:
            block.reason = block.reason or str(error)
            group.reason = group.reason or str(error)
        self.reads.noted |= outer_reads
        return result


@dataclass(slots=True)
class Shared:
    """What was shared in a capture.

    Attributes:
        blocks: each kind of block.
        recordings: of the calls that single nodes of the graph stand for others of.
        copies: how many such nodes there are.
        hidden: the weights that the capture went without.
    """

    blocks: list[Block] = field(default_factory=list)
    recordings: list[block_recording.Recording] = field(default_factory=list)
    copies: int = 0
    hidden: HiddenWeights = field(default_factory=HiddenWeights)


@contextlib.contextmanager
def sharing(model: torch.nn.Module, *, whole: bool, hides: bool = False) -> Iterator[Shared]:
    """Captures repeated blocks of a model once while it is open; what was shared is told afterwards.

    NOTE: stands in a private method of torch's tracer; without that method every block is traced.

    Args:
        model: what is captured.
        whole: let one node stand for a block, to be written out when torch is done (`block_expansion.py`).
        hides: keep the weights of those blocks from torch, to be given to the program (`restored_weights.py`).
    """
    tracer_class: Any = getattr(proxy_tensor, "_ModuleStackTracer", None)
    original = getattr(tracer_class, "call_module", None)
    told = Shared()
    if original is None or sum(1 for _ in model.modules()) < _LEAST:
        yield told
        return
    with torch._C.DisableTorchFunction():
        shared = _Sharing(model, whole=whole, hides=hides)
    told.hidden = shared.hidden

    def call_module(
        tracer: Tracer,
        m: torch.nn.Module,
        forward: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        with shared.hidden.running(tracer):
            return shared.call(tracer, m, lambda: original(tracer, m, forward, args, kwargs), args, kwargs)

    tracer_class.call_module = call_module
    try:
        with shared.reads.open(), shared.hidden.hiding():
            yield told
    finally:
        tracer_class.call_module = original
        told.blocks = [one for one in shared.blocks.values() if len(one.traced) + len(one.stamped) >= _LEAST]
        told.recordings, told.copies = list(shared.recordings.values()), shared.copies


@dataclass(frozen=True, slots=True)
class _Way:
    whole: bool
    hides: bool = False


_HIDDEN = _Way(whole=True, hides=True)
_WAYS = (_Way(whole=True), _Way(whole=False))


def by_blocks(strategy: Callable[..., torch.export.ExportedProgram]) -> Callable[..., torch.export.ExportedProgram]:
    """A strategy that captures repeated blocks once, and everything as it is where that fails.

    The program has what was shared in the attribute `_blocks`. Nodes of it may stand for whole blocks;
    `block_expansion.expanded` writes them out.
    """

    may_hide = [True]  # a model that does not do without its weights is not asked again

    def run(
        module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], form: object
    ) -> torch.export.ExportedProgram:
        failed = ""
        ways = (_HIDDEN, *_WAYS) if may_hide else _WAYS
        for way in ways:
            shared = Shared()
            try:
                with begun_anew(module, args, kwargs), sharing(module, whole=way.whole, hides=way.hides) as shared:
                    program = strategy(module, args, kwargs, form)
                if shared.hidden.blocks:
                    restored_weights.restore(program, module, shared.hidden.names)
                block_expansion.find_sources(program, shared.recordings, shared.copies)
            except NotSharedError:
                may_hide.clear()
                continue  # the nodes themselves are what torch cannot mistake
            except Exception as error:
                if shared.hidden.blocks:
                    may_hide.clear()
                    continue
                failed = f"{type(error).__name__} while sharing"
                if not any(block.stamped for block in shared.blocks):
                    raise
                break
            program._blocks = shared.blocks  # type: ignore[attr-defined]
            return program
        with begun_anew(module, args, kwargs):
            program = strategy(module, args, kwargs, form)
        program._blocks = [replace(block, stamped=[], reason=failed) for block in shared.blocks]  # type: ignore[attr-defined]
        return program

    return run
