"""What a child is told to do (an order, read once) and what it reports while it works (events, one JSON line each).

Frozen plain data in both directions, through msgspec: nothing that crosses a process boundary is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from batch_export.action import ActionResult, Mnemonic
from batch_export.digest import Digest
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import PlanSettings
from batch_export.record import Failure
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import StoreSpec

Origin = Literal["ran", "cached"]


@dataclass(frozen=True, slots=True)
class Order:
    """One child's work.

    Attributes:
        name: the unit's name, e.g. `bert_tiny/full/core`.
        cells: what to resolve, in order.
        store: the store's folder.
        scratch: an empty folder in the store, removed by the parent afterwards.
        log: the file that standard output and standard error go to.
        limit_s: wall time of one action; a stack dump is written to the log shortly before it is over.
        exclusive: whether steps that need the machine for themselves are executed; otherwise a cell stops before them.
        stages: where the stage functions are, see `steps.modules`.
        run: the run's token, which its results carry.
        store_settings: how the store is used.
        attempts: failures of earlier tries, by the key of the action that is tried again.
        failed: results of actions at which a child died and which do not end a cell; they are not executed again.
        layer: folder of the environment that the child runs in, if it is not the run's own.
    """

    name: str
    cells: tuple[PlannedCell, ...]
    toolchain: Toolchain
    settings: PlanSettings
    store: str
    scratch: str
    log: str
    limit_s: float
    exclusive: bool
    stages: dict[str, str]
    run: str = ""
    store_settings: StoreSpec = field(default_factory=StoreSpec)
    attempts: dict[Digest, tuple[Failure, ...]] = field(default_factory=dict)
    failed: tuple[ActionResult, ...] = ()
    layer: str = ""


class Started(msgspec.Struct, frozen=True, tag=True):
    """An action begins. If the child ends before the matching `Finished`, this action is to blame."""

    key: Digest
    mnemonic: Mnemonic
    description: str


class Finished(msgspec.Struct, frozen=True, tag=True):
    """An action has its result."""

    result: ActionResult
    origin: Origin


class CellStarted(msgspec.Struct, frozen=True, tag=True):
    """The child turns to `order.cells[index]`."""

    index: int


class CellDone(msgspec.Struct, frozen=True, tag=True):
    """Nothing is left to do in this child for `order.cells[index]`."""

    index: int


class UnitDone(msgspec.Struct, frozen=True, tag=True):
    """The order is carried out; the child ends.

    `spoiled`: as far as it can be here. An exporter changed the model or torch, and what is left wants another process.
    """

    spoiled: bool = False


class Warned(msgspec.Struct, frozen=True, tag=True):
    """Something went wrong without harm to a cell; the reader of the run is told once.

    `remote_failed`: the remote store does not work, and no other child need try.
    """

    text: str
    remote_failed: bool = False


Event = Started | Finished | CellStarted | CellDone | UnitDone | Warned

_decoder = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """Returns the event's line.

    Raises:
        TypeError: a result holds something that is not plain data.
    """
    return msgspec.json.encode(event) + b"\n"


def decode_event(line: bytes) -> Event:
    """Reads a line of `encode_event`."""
    event: Event = _decoder.decode(line)
    return event


def encode_order(order: Order) -> bytes:
    """Returns the order's bytes."""
    return msgspec.msgpack.encode(order)


def decode_order(data: bytes) -> Order:
    """Reads the bytes of `encode_order`."""
    return msgspec.msgpack.decode(data, type=Order)
