"""What a collection is: a row that lists names, and says which function describes one of them.

A package of anybody's adds one (`registered.py`). Nothing here imports torch or a library of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection of models.

    Attributes:
        name: what stands before the colon in `matrix.models=['transformers:bert.*']`.
        library: import name of the package that has the models; where it is missing the collection is refused.
        packages: distributions whose versions descriptions depend on.
        names: lists the models with their tags, by names without `/` and `:`. It is called in the process that plans,
            so it must import neither torch nor the library.
        describe: `module:function`, called in a child with one of the names. It returns what a file of `conf/model/`
            would hold, as plain mappings, or raises; the error's line is the reason why the model has no cell.
        prepare: `module:function`, called once in the child before the first name, such as for slow imports; may be
            empty.
        limit_s: processor time of one description, in seconds; five times as long by the clock.
    """

    name: str
    library: str
    packages: tuple[str, ...]
    names: Callable[[], Mapping[str, tuple[str, ...]]]
    describe: str
    prepare: str = ""
    limit_s: float = 120.0
