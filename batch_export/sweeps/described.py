"""Models without a file of their own: described, asked about, and kept as configs below the outputs.

Questions or configs arrive; a folder leaves that a sweep takes as `--config-dir`, one for each description, so that an
older run keeps what it had. torch is never imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batch_export.digest import digest_value
from batch_export.errors import UsageError
from batch_export.report import run_folder as files
from batch_export.runner.probe import probe
from batch_export.stages.probe_request import Probed, ProbeRequest, builder_module
from batch_export.sweeps.model_yaml import config_of, yaml_of

_LONGEST = 200
"""Bytes of a model's name, which files and folders have with endings."""


def described(request: ProbeRequest, timeout_s: float) -> tuple[dict[str, Any], Probed]:
    """Returns the content of a model's config, and what a child found.

    Raises:
        UsageError: there is no such model, or it does not run.
        RunError: the child died, or took too long.
    """
    found = probe(request, timeout_s)
    return config_of(found), found


def keep_config(
    outputs: Path, configs: Mapping[str, Mapping[str, Any]], builders: Mapping[str, str] | None = None
) -> Path:
    """Writes configs of models by name below the outputs; returns the folder for `--config-dir`.

    Args:
        outputs: the folder of runs.
        configs: by name of the model.
        builders: by name of the model, text of the module that its config's target is in, where it has one; modules
            in a config folder are importable.

    Raises:
        UsageError: a config cannot be meant.
        RunError: the folder cannot be written.
    """
    for name in configs:
        if len(os.fsencode(name)) > _LONGEST:
            raise UsageError(
                f"model {name[:40] + '...'!r}: a name of more than {_LONGEST} bytes is no file's; shorten it"
            )
    texts = {name: yaml_of(name, config) for name, config in configs.items()}
    modules = {builder_module(name): text for name, text in (builders or {}).items() if text}
    folder = outputs / files.TRIED / digest_value([texts, modules] if modules else texts)[:12]
    files.require_writable(folder / "model", "--outputs")
    for module, text in modules.items():
        files.write_whole(folder / f"{module}.py", text.encode())
    for name, text in texts.items():
        files.write_whole(folder / "model" / f"{name}.yaml", text.encode())
    return folder
