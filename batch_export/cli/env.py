"""`env list|create|remove|doctor`: environments of runtimes, models, exporters: listed, made, removed, looked at.

Words and overrides arrive, lines and an exit code leave. `create` and `doctor` go by the configs of providers, models
and exporters.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from batch_export.cli.arguments import VerbParser
from batch_export.cli.cache import size_text
from batch_export.config.compose import Composed, compose_and_call
from batch_export.config.groups import ConfigGroups
from batch_export.config.model import model_spec
from batch_export.config.run import exporter_spec, provider_spec
from batch_export.environments import shelf
from batch_export.environments.making import EnvironmentUnavailableError, environment_for, wanted_for
from batch_export.errors import BatchExportError, UsageError
from batch_export.nouns import counted
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.sources.closure import local_roots
from batch_export.words import did_you_mean

WORDS = ("list", "create", "remove", "doctor")
_GROUPS = ("provider", "exporter", "model")


def run(arguments: list[str]) -> int:
    """Carries out one of the four; 1 when an environment could not be made or used."""
    word = arguments[0] if arguments else ""
    if word not in WORDS:
        hint = did_you_mean(word, WORDS) or f"; there are {', '.join(WORDS)}, e.g. `env create openvino`"
        raise UsageError(f"Unknown env command {word!r}{hint}")
    parser = VerbParser(f"env {word}", f"{_ABOUT[word]}; environments are kept in {shelf.root()}")
    if word == "create":
        parser.add_argument(
            "names", nargs="*", help="names or globs of configs of providers, models and exporters; default: all"
        )
    elif word == "remove":
        parser.add_argument("names", nargs="*", help="names of environments, or how they begin")
        parser.add_argument("--all", action="store_true", help="every environment")
    if word in ("create", "doctor"):
        parser.add_argument("--config-dir", action="append", default=[], help="a folder with provider/NAME.yaml")
    asked, rest = parser.parse_known_args(arguments[1:])
    if unknown := [one for one in rest if "=" not in one or one.startswith("-")]:
        raise UsageError(f"env {word} takes no {unknown[0]}. Next step: `{parser.prog} --help`")
    if word == "list":
        return _list()
    if word == "remove":
        return _remove(asked)
    work = _create if word == "create" else _doctor
    words = [*(f"--config-dir={folder}" for folder in asked.config_dir), *rest]
    return compose_and_call(lambda composed: work(composed, asked), words, leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    if before[:1] == ["remove"]:
        return [folder.name for folder, _ in shelf.all_environments()]
    return () if before else WORDS


def _list() -> int:
    there = shelf.all_environments()
    for folder, environment in there:
        print(f"{folder.name}  {_state(folder, environment)}  {size_text(_size(folder))}")
        for line in environment.content if environment is not None else ():
            print(f"  {line}")
    print(f"{counted(len(there), 'environment')} in {shelf.root()}")
    return 0


def _create(composed: Composed, asked: argparse.Namespace) -> int:
    failed = 0
    for wanted in _wanted(composed, asked.names):
        try:
            made = environment_for(wanted.env, wanted.language, layered=wanted.layered, tell=_tell)
        except EnvironmentUnavailableError as error:
            failed += 1
            print(f"fail  {wanted.name}: {error}")
            continue
        print(f"ok    {wanted.name}: {made.name} ({made.resolved})")
    return 1 if failed else 0


def _remove(asked: argparse.Namespace) -> int:
    if not asked.names and not asked.all:
        raise UsageError("env remove needs a name, as `env list` shows them, or --all")
    folders = [folder for folder, _ in shelf.all_environments()] if asked.all else map(shelf.named, asked.names)
    for folder in folders:
        shelf.remove(folder)
        print(f"removed {folder.name}")
    return 0


def _doctor(composed: Composed, asked: argparse.Namespace) -> int:
    from batch_export.runtime.worker.session import started  # lazy: it imports numpy

    failed = 0
    for folder, environment in shelf.all_environments():
        if reason := shelf.refusal(folder):
            print(f"warn  {folder.name}: {reason}")
        elif environment is None:
            print(
                f"warn  {folder.name} is half-made; it is made again when it is needed, or `env remove {folder.name}`"
            )
        elif reason := shelf.damage(environment):
            print(f"warn  {folder.name}: {reason}; it is made again when it is needed")
    for wanted in _wanted(composed, ()):
        if wanted.provider is None:
            failed += not _looked_at(wanted)
            continue
        provider, kind = wanted.provider, runtime(wanted.provider.kind)
        try:
            if shelf.found(wanted_for(provider.env, kind.language)) is None:
                print(f"-     {provider.name}: not made yet; `env create {provider.name}` makes it")
                continue
            worker, told = started(provider, kind, 1, echo=False)
            worker.close()
        except BatchExportError as error:
            failed += 1
            print(f"fail  {str(error).removeprefix('provider ')}")
            continue
        print(
            f"ok    {provider.name}: {kind.called} {told.version} starts; it has {', '.join(told.execution_providers)}"
        )
    return 1 if failed else 0


def _looked_at(wanted: _Wanted) -> bool:
    """Prints how the environment of a model or an exporter is; whether its Python starts and finds what is ours."""
    there = shelf.found(wanted_for(wanted.env, layered=True))
    if there is None:
        print(f"-     {wanted.name}: not made yet; `env create {wanted.name}` makes it")
        return True
    words = [str(there.program), "-c", "import batch_export.runner.worker"]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, local_roots()))}
    done = subprocess.run(words, env=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        print(
            f"fail  {wanted.name}: its Python does not start: {(done.stderr.splitlines() or ['it said nothing'])[-1]}"
        )
        return False
    print(f"ok    {wanted.name}: {there.name} starts, over this environment ({', '.join(there.content) or 'nothing'})")
    return True


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An environment that a config asks for; `provider` is the config where it is one of a provider."""

    name: str
    env: tuple[str, ...]
    language: str = "python"
    provider: ProviderSpec | None = None

    @property
    def layered(self) -> bool:
        return self.provider is None


def _wanted(composed: Composed, patterns: Sequence[str]) -> list[_Wanted]:
    groups = composed.groups
    every = [(group, name) for group in _GROUPS for name in groups.names(group)]
    chosen: list[_Wanted] = []
    for pattern in patterns or ["*"]:
        found = [_of(groups, group, name) for group, name in every if fnmatchcase(name, pattern)]
        if not found:
            hint = did_you_mean(pattern, [name for _, name in every])
            raise UsageError(f"No provider, model or exporter is called {pattern!r}{hint}")
        if pattern in {one.name for one in found} and not any(one.env for one in found):
            group = "provider" if found[0].provider is not None else "model or exporter"
            raise UsageError(f"{group} {pattern} has no environment of its own: its config names no 'env'")
        chosen += [one for one in found if one.env and one not in chosen]
    return chosen


def _of(groups: ConfigGroups, group: str, name: str) -> _Wanted:
    config = groups.load(group, name)
    if group == "provider":
        provider = provider_spec(name, config)
        return _Wanted(name, provider.env, runtime(provider.kind).language, provider)
    env = (model_spec(name, config) if group == "model" else exporter_spec(name, config)).env
    return _Wanted(name, env)


def _state(folder: Path, environment: shelf.Environment | None) -> str:
    if environment is None:
        return shelf.refusal(folder) or "half-made"
    reason = shelf.damage(environment)
    state = f"damaged: {reason}" if reason else f"made by {environment.maker} in {environment.seconds:g} s"
    over = " over another environment" if environment.below else ""
    return f"{', '.join(environment.requirements)} ({environment.language} {environment.interpreter}{over}), {state}"


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr)


_ABOUT = {
    "list": "What is there, and what it holds",
    "create": "Makes the environments that providers, models and exporters need, so that sweeps find them, offline too",
    "remove": "Removes environments",
    "doctor": "Looks at every environment and starts what runs in them",
}
