"""Runs a function inside Hydra's application with the composed configuration, and turns its errors into sentences.

Overrides and Hydra's flags go in, the function's exit code comes out. Hydra's own formatting of errors, which ends in a
traceback or several paragraphs, is not used; help, `--cfg`, `--info` and completion are Hydra's.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from batch_export.config.folders import on_search_path, taken_out
from batch_export.config.groups import ConfigGroups
from batch_export.config.quoting import with_quotes
from batch_export.config.schema import known_keys, register
from batch_export.config.sentences import explain
from batch_export.errors import RunError, UsageError
from batch_export.sources.places import conf_dir
from batch_export.spec import RunSpec
from batch_export.words import nearest

_FULL_ERROR = "HYDRA_FULL_ERROR"
_NO_TRACE = (
    *("hydra.run.dir=.", "hydra.output_subdir=null"),
    *("hydra/job_logging=none", "hydra/hydra_logging=none"),
)

_CHOSEN_AT_FIRST = ("runner", "expect")
"""Config groups that the defaults of `config.yaml` choose from."""

_BARE_WORD = re.compile(r"[A-Za-z][\w./-]*")
_MULTIRUN = re.compile(r"\+{0,2}hydra\.mode=.*multirun.*", re.IGNORECASE)
_INFO_FLAGS = ("--info", "-i")
_BASELINE = re.compile(r"^(\+{0,2}baseline=)(latest~\d+)$")
"""Hydra's grammar has no `~` in a value that is not quoted, and a shell would have taken the quotes away."""

_ENVIRONMENT = re.compile(r"^(?P<key>\+{0,2}matrix\.env=)\[?(?P<requirements>[^'\"\]]+)\]?$")
_NEXT_REQUIREMENT = re.compile(r",(?=\s*[A-Za-z./~])")
"""Nor has it a `=` there; the comma of `torch>=2.11,<2.13` parts nothing."""


@dataclass(frozen=True, slots=True)
class Composed:
    """What a command gets to work with.

    Attributes:
        config: the composed configuration without the `hydra` node.
        groups: the config groups along the search path.
        run_folder: the run's folder, made already unless the command leaves no trace.
        overrides: as on the command line.
        choices: the configs that Hydra composed, such as `("sweep", "all")`.
    """

    config: DictConfig
    groups: ConfigGroups
    run_folder: Path
    overrides: tuple[str, ...]
    choices: tuple[tuple[str, str], ...] = ()

    def hidden(self, spec: RunSpec) -> tuple[str, ...]:
        """Sentences about configs of the user's that took the place of shipped ones in this run."""
        matrix = spec.matrix
        named = (("model", matrix.models), ("provider", matrix.providers), ("exporter", matrix.exporters))
        used = [(group, item.name) for group, items in named for item in items]
        return self.groups.hidden([*self.choices, *used])


def compose_and_call(command: Callable[[Composed], int], arguments: Sequence[str], *, leave_no_trace: bool) -> int:
    """Composes the configuration and calls `command` with it.

    Args:
        command: returns the exit code; what it raises is raised here.
        arguments: overrides and flags of Hydra, in any order.
        leave_no_trace: no run folder and no log file is made.

    Raises:
        UsageError: the arguments or a config file are wrong; one sentence.
        RunError: the run's folder cannot be made.
    """
    overrides, flags = arrange(arguments)
    if any(flag in ("--multirun", "-m") for flag in flags) or any(map(_MULTIRUN.fullmatch, overrides)):
        raise UsageError("--multirun is not used here: the matrix' own keys take lists, e.g. matrix.opsets=[18,20]")
    for word in overrides:
        if "=" not in word and not word.startswith("~"):
            hint = "a verb is one of those that `list verbs` prints"
            models = f"""models are chosen with "matrix.models=['{word}']" """.rstrip()
            raise UsageError(
                f"{word!r} is not an override (key=value); {hint if _BARE_WORD.fullmatch(word) else models}"
            )
        _refuse_taking_away(word)
    flags, composing, folders = taken_out(flags, overrides)
    outcome: list[int] = []
    raised: list[Exception] = []

    def task(config: DictConfig) -> None:
        runtime = HydraConfig.get()
        sources = [(source.provider, _address(source.schema, source.path)) for source in runtime.runtime.config_sources]
        chosen = tuple((str(group), str(name)) for group, name in runtime.runtime.choices.items() if name)
        folder = Path(runtime.runtime.output_dir)
        try:
            outcome.append(command(Composed(config, ConfigGroups(sources), folder, tuple(overrides), chosen)))
        except Exception as error:  # Hydra would print its own words first; it is raised again below
            raised.append(error)

    register()
    shown = [*flags, *composing, *(_NO_TRACE if leave_no_trace else ())]
    application = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(task)
    with on_search_path(folders), _hydra_settings([sys.argv[0], *shown]):
        try:
            application()
        except (HydraException, OmegaConfBaseException, YAMLError) as error:
            raise UsageError(explain(error, overrides)) from error
        except RecursionError as error:
            raise UsageError("a config includes itself, perhaps by another one: see its `defaults`") from error
        except ValueError as error:  # how Hydra refuses flags that exclude each other
            raise UsageError(str(error)) from error
        except OSError as error:
            if error.filename is None and (leave_no_trace or flags or isinstance(error, BrokenPipeError)):
                raise  # what was printed has no reader any more, or no room; nothing is wrong with the folder
            place = "" if error.filename is None else f": {error.filename}"
            raise RunError(
                f"The run's folder cannot be made ({error.strerror}{place}). "
                "Next step: choose another with output.path=..."
            ) from error
    if raised:
        if isinstance(raised[0], OmegaConfBaseException):  # an interpolation that is resolved when it is looked at
            raise UsageError(explain(raised[0], overrides)) from raised[0]
        raise raised[0]
    return outcome[0] if outcome else 0


def arrange(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts overrides from Hydra's flags (with their values), so that flags may stand anywhere: `a=1 --cfg job b=2`.

    Raises:
        UsageError: a flag that Hydra does not have; the sentence has the nearest one.
    """
    known = _hydra_flags()
    overrides: list[str] = []
    flags: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            overrides.append(with_quotes(_ENVIRONMENT.sub(_quoted, _BASELINE.sub(r"\1'\2'", word))))
            continue
        action = known.get(word.partition("=")[0])
        if action is None:
            near = nearest(word, tuple(known), 1)
            raise UsageError(f"Unknown flag {word!r} ({f'nearest: {near[0]}; ' if near else ''}`--help` lists them)")
        takes_next = "=" not in word and (action.nargs is None or (action.nargs == "?" and _is_choice(action, rest)))
        if word in _INFO_FLAGS and not takes_next:
            word = "--info=all"  # otherwise argparse would take the override after it for the flag's value
        if takes_next and not rest and action.nargs is None:
            raise UsageError(f"The flag {word!r} needs a value after it")
        flags.append(word)
        if takes_next and rest:
            flags.append(rest.pop(0))
    return overrides, flags


def _refuse_taking_away(word: str) -> None:
    """Refuses `~key` where a run needs the key: Hydra would take out whole groups of them, and refuse the keys in it.

    Raises:
        UsageError: it is one; `~runner` and `~expect` are configs that were chosen, behind which defaults are left.
    """
    key = word.removeprefix("~").partition("=")[0].strip()
    if word.startswith("~") and key in known_keys() and key not in _CHOSEN_AT_FIRST:
        raise UsageError(
            f"{word!r}: {key!r} is a key that every run needs, so it cannot be taken away. Next step: leave the word "
            "out, which leaves the key as it is, or give it another value with key=value"
        )


def _quoted(found: re.Match[str]) -> str:
    requirements = _NEXT_REQUIREMENT.split(found["requirements"])
    return f"{found['key']}[{','.join(repr(text.strip()) for text in requirements)}]"


@cache
def _hydra_flags() -> dict[str, argparse.Action]:
    return {name: action for action in get_args_parser()._actions for name in action.option_strings}


def takes_value(word: str) -> bool:
    """Whether a word is one of Hydra's flags that needs the next word as its value."""
    action = _hydra_flags().get(word)
    return action is not None and action.nargs is None


def _is_choice(action: argparse.Action, rest: Sequence[str]) -> bool:
    return bool(rest) and rest[0] in (action.choices or ())


def _address(schema: str, path: str) -> str:
    return f"{schema}://{path}"


@contextmanager
def _hydra_settings(argv: list[str]) -> Iterator[None]:
    """Hydra reads `sys.argv`, and hands errors on only when this variable asks it to; both are put back.

    To learn whether it is to run once or many times, it composes the whole configuration before it composes it again to
    run, which is a fifth of what a sweep that is cached takes. Here it always runs once. For each config group that its
    help lists it copies all that it knows of configs, which is two thirds of what `--help` takes. Here it copies once.
    """
    old_argv, old_value, ask = sys.argv, os.environ.get(_FULL_ERROR), Hydra.get_mode
    options = ConfigLoaderImpl.get_group_options
    sys.argv, os.environ[_FULL_ERROR] = argv, "1"
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    ConfigLoaderImpl.get_group_options = _options_from_one_copy()  # type: ignore[method-assign]
    try:
        yield
    finally:
        sys.argv = old_argv
        ConfigLoaderImpl.get_group_options = options  # type: ignore[method-assign]
        Hydra.get_mode = ask  # type: ignore[method-assign]
        if old_value is None:
            del os.environ[_FULL_ERROR]
        else:
            os.environ[_FULL_ERROR] = old_value


def _options_from_one_copy() -> Callable[..., list[str]]:
    """Hydra's function for the configs of a group, where it goes through one group after another."""
    original = ConfigLoaderImpl.get_group_options
    copies: dict[ConfigLoaderImpl, CachingConfigRepository] = {}

    def get_group_options(loader: ConfigLoaderImpl, group_name: str, *args: Any, **kwargs: Any) -> list[str]:
        if len(args) > 1 or kwargs.keys() - {"results_filter"}:
            return original(loader, group_name, *args, **kwargs)
        if loader not in copies:
            copies[loader] = loader._parse_overrides_and_create_caching_repo(None, [])[1]
        return copies[loader].get_group_options(group_name, *args, **kwargs)

    return get_group_options
