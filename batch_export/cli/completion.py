"""What a shell may offer for the word at the cursor: verbs, their flags, what a verb takes next, names in lists.

A command line that is being typed arrives, as shells hand it over (`COMP_LINE`); words leave. The keys and groups of
the configuration are Hydra's to offer; its functions for bash, zsh and fish (`-sc install=bash`) are what asks.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from batch_export.cli.arguments import SHOW_PARSER, ShownParser, offered_runs
from batch_export.cli.known import BRIEF, LAST_FAILED, module_of, verbs
from batch_export.config import brought_exporters
from batch_export.config.groups import TAG
from batch_export.errors import BatchExportError
from batch_export.sources.places import conf_dir

_SWEEP_FLAGS = (
    *BRIEF,
    *LAST_FAILED,
    "--cfg",
    "--config-dir",
    "--help",
    "--info",
    "--package",
    "--resolve",
    "--version",
)
_FOLDER_FLAGS = ("--config-dir", "-cd")
_RUN_FLAGS = ("--run", "--baseline")
_LISTS = {"models": "model", "providers": "provider", "exporters": "exporter"}
_IN_A_LIST = re.compile(rf"(?P<start>matrix\.(?P<key>{'|'.join(_LISTS)})=\[?(?:[^\[\]]*,)?)(?P<word>[^,\[\]]*)")


def offer() -> None:
    """Prints our words for the line that is being typed, one a line, and leaves Hydra the line without its verb."""
    line = os.environ.get("COMP_LINE", "")
    for word in offered(*split(line)):
        print(word)
    os.environ["COMP_LINE"] = rest_of(line)


def split(line: str) -> tuple[list[str], str]:
    """Returns the words before the one at the cursor, without the program, and that one, which may be empty."""
    words = line.split()
    if line[-1:].isspace() or not words:
        words.append("")
    program = words.index("batch_export") if "batch_export" in words[:-1] else 0  # python -m batch_export
    return words[program + 1 : -1], words[-1]


def offered(before: Sequence[str], word: str) -> list[str]:
    """Returns our own words for the cursor's place.

    Args:
        before: the words between the program and the cursor.
        word: what of the word at the cursor is there already.
    """
    if word.startswith("-"):
        known = _flags(before) if before and before[0] in verbs() else _SWEEP_FLAGS
        return sorted(flag for flag in known if flag.startswith(word))
    if not before and "=" not in word:
        return [name for name in verbs() if name.startswith(word)]
    inside = _IN_A_LIST.fullmatch(word)
    if inside is not None:
        names = _names(_LISTS[inside["key"]], before)
        if inside["word"].startswith(TAG[:1]) and inside["key"] == "models":
            names = [*names, *_tags(before)]
        return [inside["start"] + name for name in names if name.startswith(inside["word"])]
    flags = _flags(before)
    if before and before[-1] in flags:
        action = flags[before[-1]]
        runs = offered_runs(before) if before[-1] in _RUN_FLAGS else []
        if _takes_value(action):
            return [name for name in (*map(str, action.choices or ()), *runs) if name.startswith(word)]
    if before and before[0] in verbs() and "=" not in word:
        verb = importlib.import_module(f"batch_export.cli.{module_of(before[0])}")  # lazy: only the one that is typed
        next_words: Iterable[str] = verb.offers(before[1:]) if hasattr(verb, "offers") else ()
        return [name for name in next_words if name.startswith(word)]
    return []


def rest_of(line: str) -> str:
    """Returns of the line what Hydra knows of: overrides, config folders and the word at the cursor.

    Left out are the verb with its own words and flags, and the flags of a sweep; of a flag's value Hydra knows nothing.
    """
    before, word = split(line)
    flags = _flags(before)
    kept = ["batch-export"]
    for last, one in pairwise(["", *before]):
        is_folder = last in _FOLDER_FLAGS or one in _FOLDER_FLAGS or one.startswith(f"{_FOLDER_FLAGS[0]}=")
        is_value = last in flags and _takes_value(flags[last])
        if is_folder or ("=" in one and not is_value and not one.startswith("-")):
            kept.append(one)
    is_value = bool(before) and before[-1] in flags and _takes_value(flags[before[-1]])
    takes_overrides = _FOLDER_FLAGS[0] in flags or not before or before[0] not in verbs()
    return " ".join([*kept, word if takes_overrides and not is_value and not word.startswith("-") else "-"])


def _flags(before: Sequence[str]) -> dict[str, argparse.Action]:
    """The flags of the verb that is typed, as its parser tells them; none without a verb."""
    if not before or before[0] not in verbs():
        return {}
    verb = importlib.import_module(f"batch_export.cli.{module_of(before[0])}")  # lazy: only the one that is typed
    for words in ([*before[1:2], SHOW_PARSER], [SHOW_PARSER]):  # the first word may be a command of the verb's
        try:
            verb.run(words)
        except ShownParser as shown:
            return shown.parser.flags()
        except (BatchExportError, SystemExit):
            continue
    return {}


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def models(before: Sequence[str]) -> list[str]:
    """Returns the names of the models; a `--config-dir` among the words counts."""
    return _names("model", before)


def _names(group: str, before: Sequence[str]) -> list[str]:
    brought = brought_exporters.names() if group == brought_exporters.CONFIG_GROUP else []
    return sorted({*(path.stem for path in _configs(group, before)), *brought})


def _tags(before: Sequence[str]) -> list[str]:
    """The tags of the models, as far as their files can be read as plain YAML."""
    found: set[str] = set()
    for path in _configs("model", before):
        try:
            config = OmegaConf.load(path)
            listed = config.get("tags", ()) if isinstance(config, DictConfig) else ()
        except (OSError, YAMLError, OmegaConfBaseException):
            continue
        found.update(TAG + str(tag) for tag in ((listed,) if isinstance(listed, str) else listed or ()))
    return sorted(found)


def _configs(group: str, before: Sequence[str]) -> list[Path]:
    own = [Path(after) for flag, after in pairwise(before) if flag in _FOLDER_FLAGS]
    own += [Path(word.partition("=")[2]) for word in before if word.startswith("--config-dir=")]
    return [path for folder in (*own, conf_dir()) for path in (folder / group).glob("*.yaml")]
