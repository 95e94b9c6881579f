"""batch_export.sources.places: a shipped config means the shipped model, wherever the program runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from batch_export.errors import UsageError
from batch_export.sources.places import ZOO_PACKAGE, conf_dir, models_dir, resolve_target


def test_shipped_folders_exist() -> None:
    assert (conf_dir() / "config.yaml").is_file()
    assert (models_dir() / "__init__.py").is_file()


def test_the_zoos_targets_are_found_under_a_name_of_ours() -> None:
    builder = next(path for path in sorted(models_dir().glob("*.py")) if path.stem != "__init__")
    package = importlib.import_module(ZOO_PACKAGE)
    assert [Path(entry).resolve() for entry in package.__path__] == [models_dir()]
    name = next(
        line.split("(")[0].removeprefix("def ") for line in builder.read_text().splitlines() if line[:4] == "def "
    )
    assert resolve_target(f"models.{builder.stem}.{name}") == (f"{ZOO_PACKAGE}.{builder.stem}", name)


@pytest.mark.parametrize("name", ["models.mine.tiny", "my_models.tiny", "a.b.c.build", "models.recurrent.unheard_of"])
def test_other_names_are_taken_as_they_stand(name: str) -> None:
    assert resolve_target(name) == tuple(name.rsplit(".", 1))


@pytest.mark.parametrize("name", ["tiny", "", "my-models.tiny", "a..b", "module.<locals>.build", ".tiny"])
def test_what_is_no_dotted_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the dotted name of a function"):
        resolve_target(name)


def test_the_zoo_imports_itself_relatively_only() -> None:
    for path in models_dir().rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not line.lstrip().startswith(("from models", "import models", "from batch_export.zoo")), (path, line)
