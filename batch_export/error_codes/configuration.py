"""BE1xx: configuration, models as they are described, the run's own folders and files."""

from __future__ import annotations

from batch_export.error_codes.explanation import Explanation, Kind

CONFIGURATION = (
    Explanation(
        "BE101",
        "UsageError",
        "A key, a name or an argument has to be corrected",
        "The command line, a config or an argument names something that does not exist, or two of them contradict "
        "each other. Nothing was run; the exit code is 2.",
        Kind.COMMAND,
        "batch-export plan matrix.models=[bert_tny]",
        "The sentence names the wrong word and the nearest right one. `--cfg job` shows the composed configuration, "
        "`--help` the keys.",
    ),
    Explanation(
        "BE102",
        "RunError",
        "The run itself could not go on",
        "A folder cannot be written, the disk is full, or the process that children are forked from did not start. "
        "The exit code is 3; what was finished is in the store.",
        Kind.COMMAND,
        "batch-export matrix.models=[cnn] hydra.run.dir=/dev/null/run",
        "Mend what the sentence names, then run the same command, or `batch-export resume`: finished cells are not run "
        "again.",
    ),
    Explanation(
        "BE111",
        "StoreError",
        "The store could not be read or written",
        "The store's folder lacks rights or room, is not a store, or has a format that this version does not read.",
        Kind.PYTHON,
        """
import pathlib, tempfile
from batch_export.store import open_store

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "version").write_text("999")
open_store(folder)
""",
        "`batch-export doctor` looks at the store. One of another version can be removed or left aside: choose another "
        "folder with store.path.",
    ),
    Explanation(
        "BE112",
        "CorruptArtifactError",
        "A stored file is not what its digest says",
        "A disk error, or somebody edited a file of the store. The file is put into quarantine, and whatever made it "
        "is executed again; seen too often in one cell it ends that cell.",
        Kind.PYTHON,
        """
import pathlib, tempfile
from batch_export.store import open_store

folder = pathlib.Path(tempfile.mkdtemp())
store = open_store(folder / "store")
(folder / "file").write_bytes(b"some bytes")
digest = store.put_file(folder / "file")
path = store.blob_path(digest)
path.chmod(0o644)
path.write_bytes(b"other bytes and more")
open_store(folder / "store").blob_path(digest)
""",
        "Nothing, if it happens once. Again and again: `batch-export cache verify`, then look at the disk.",
    ),
    Explanation(
        "BE113",
        "MissingArtifactError",
        "A file that a result names is not in the store",
        "The store was cleaned or removed while a run was reading it. Whatever made the file is executed again.",
        Kind.PYTHON,
        """
import pathlib, tempfile
from batch_export.store import open_store

open_store(pathlib.Path(tempfile.mkdtemp()) / "store").blob_path("0" * 64)
""",
        "Nothing; leave the store alone while a run is going (`cache gc` does by itself).",
    ),
    Explanation(
        "BE121",
        "ModelError",
        "A model's builder, or the inputs that its config describes, cannot be used",
        "The builder cannot be imported or raises, returns something else than a module, or its forward does not take "
        "the inputs that the config lists.",
        Kind.MODEL,
        """
def build():
    return "not a module"
""",
        "Correct the builder or the model's config; the sentence names the argument, input or module.",
    ),
    Explanation(
        "BE122",
        "LibraryMissingError",
        "A package that a model, provider or exporter needs is not installed",
        "Its `requires` names a package that this environment does not have. In a sweep its cells are skipped, with "
        "the package as the reason.",
        Kind.PYTHON,
        """
from batch_export.spec import ModelSpec
from batch_export.stages.model import build

build(ModelSpec("mine", "my_models.build", {}, (), requires=("no_such_package",)))
""",
        "Install the package, or leave the model, provider or exporter out of the matrix.",
    ),
    Explanation(
        "BE123",
        "OutputNames",
        "A config names another number of outputs than the model has",
        "`output_names` of the model's config and the tensors that forward returns have to be as many. Outputs are "
        "counted by tensors: a tuple of two is two, None is none.",
        Kind.MODEL,
        """
import torch


def build():
    return torch.nn.ReLU()
""",
        "Correct `output_names`, or leave it out.",
        config="output_names: [first, second]",
    ),
    Explanation(
        "BE124",
        "EnvironmentUnavailableError",
        "An environment that a provider, a model or an exporter needs is not there and cannot be made",
        "A requirement cannot be installed, the package index is out of reach, Node is missing or too old, or the "
        "folder of environments cannot be written. In a sweep the cells are skipped with the sentence; "
        "`bisect-version` also ends with it where nobody lists the releases of a package.",
        Kind.PYTHON,
        """
import os
from unittest.mock import patch
from batch_export.environments.making import environment_for

with patch.dict(os.environ, {"BATCH_EXPORT_ENVIRONMENTS": "/dev/null/environments"}):
    environment_for(["openvino==2026.4.*"])
""",
        "Do what the sentence says; the installer's words are in it. `batch-export env create NAME` tries again.",
    ),
)
"""By rising code."""
