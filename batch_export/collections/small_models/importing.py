"""Imports a package of models, or says in one sentence why it cannot be imported here.

A name arrives, a module leaves. torchvision's wheel of the package index is built for CUDA: beside a torch without it,
its compiled part does not load, and then its Python part does not import either, for want of its operators' names.
Those that it asks for are declared, without kernels, so that packages which use its Python alone can be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from batch_export.words import class_and_line


class UnimportableError(ImportError):
    """A package that is installed and cannot be imported; one sentence."""


@cache
def imported(package: str) -> ModuleType:
    """Returns a package's module.

    Raises:
        UnimportableError: it or something that it needs cannot be imported here.
    """
    declare_operators()
    try:
        return importlib.import_module(package)
    except Exception as error:  # whatever a package raises as it is imported
        raise UnimportableError(f"{package} cannot be imported here: {class_and_line(_cause(error))}") from error


def _cause(error: BaseException) -> BaseException:
    """The error that others were raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


_DECLARED: list[Any] = []
"""Declarations last as long as the object that made them."""


@cache
def declare_operators() -> None:
    """Gives torchvision the names of operators that its Python part needs, where its compiled part does not load.

    What looks for torchvision and imports it where it is installed, as most of transformers does, cannot be imported
    before.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.origin:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if _ABSENT.search(str(error)) is None:
            return
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in dict.fromkeys(_GIVEN_SHAPES.findall((Path(found.origin).parent / _SHAPES).read_text())):
            declared.define(f"{name}() -> ()")
        _DECLARED.append(declared)
    except Exception:  # the import that follows says it better
        return


_SHAPES = "_meta_registrations.py"
_ABSENT = re.compile(r"operator torchvision::\w+ does not exist")
_GIVEN_SHAPES = re.compile(r"register_fake\(\"torchvision::(\w+)\"\)")
