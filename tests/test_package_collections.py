"""Collections of packages beside transformers: names read from files, classes made small, models that eager runs.

Most tests have a small package of their own with the same shape of files; those of a real package say why they skip.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_export.collections.diffusers.describing import describe_named as describe_diffusers
from batch_export.collections.diffusers.names import names as diffusers_names
from batch_export.collections.monai.describing import describe_named as describe_monai
from batch_export.collections.monai.names import names as monai_names
from batch_export.collections.registered import COLLECTIONS
from batch_export.collections.small_models.building import build, made
from batch_export.collections.small_models.calling import UndescribedError
from batch_export.collections.small_models.classes import Classes, describe
from batch_export.collections.small_models.errors_read import (
    arguments_lacking,
    channels_said,
    is_too_small,
    sides_said,
)
from batch_export.collections.small_models.importing import UnimportableError, imported
from batch_export.collections.small_models.leaves import Attempt, Leaf
from batch_export.collections.small_models.repairs import repaired
from batch_export.collections.small_models.shrinking import shrink
from batch_export.collections.small_models.signatures import Constant, Option
from batch_export.collections.timm.building import laid_over
from batch_export.collections.timm.describing import describe_named as describe_timm
from batch_export.collections.timm.names import names as timm_names
from batch_export.collections.torch_geometric.describing import describe_named as describe_geometric
from batch_export.collections.torch_geometric.names import names as geometric_names
from batch_export.config.model import model_spec
from batch_export.stages import model as models

FILES = {
    "timm/models/resnet.py": (
        "import torch_that_is_not_there\n"
        "@register_model\ndef resnet18(pretrained=False, **kwargs) -> ResNet:\n    return 1\n"
        "@register_model\n@deprecated('x')\ndef resnet50(\n        pretrained=False):\n    return 1\n"
        "def _create_resnet(variant):\n    return 1\n"
    ),
    "timm/models/vit.py": "@register_model\ndef vit_tiny(pretrained=False):\n    return 1\n",
    "diffusers/models/__init__.py": (
        "_import_structure = {}\nif is_torch_available():\n"
        "    _import_structure['attention_dispatch'] = ['AttentionBackendName', 'attention_backend']\n"
        "    _import_structure['auto_model'] = ['AutoModel']\n"
        "    _import_structure['unets.unet_2d'] = ['UNet2DModel']\n"
        "    _import_structure['adapter'] = ['T2IAdapter', 'MultiAdapter']\n"
        "    sys.modules[__name__] = _LazyModule()\n"
    ),
    "diffusers/models/attention_dispatch.py": "class AttentionBackendName(str, Enum):\n    A = 1\n",
    "diffusers/models/auto_model.py": "class AutoModel(ConfigMixin):\n    a = 1\n",
    "diffusers/models/unets/unet_2d.py": "class UNet2DModel(\n    ModelMixin, ConfigMixin\n):\n    a = 1\n",
    "diffusers/models/adapter.py": (
        "class T2IAdapter(nn.Module):\n    a = 1\nclass MultiAdapter(ModelMixin):\n    a = 1\n"
    ),
    "torch_geometric/nn/models/__init__.py": (
        "from .basic_gnn import GCN, GAT\nfrom .explain import to_captum\n"
        "__all__ = classes = [\n    'GCN',\n    'GAT',\n    'to_captum',\n]\n"
    ),
    "monai/networks/nets/__init__.py": (
        "from __future__ import annotations\nfrom .unet import UNet, Unet\nfrom .args import BlockArgs, get_size\n"
    ),
    "monai/networks/nets/unet.py": "class UNet(nn.Module):\n    a = 1\nUnet = UNet\n",
    "monai/networks/nets/args.py": "class BlockArgs(NamedTuple):\n    a = 1\ndef get_size():\n    return 1\n",
}

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, in_channels, hidden_size=512, num_layers=12, classes=None, kernels=(3, 3), pretrained=True):
        super().__init__()
        if pretrained:
            raise OSError("it wants the network")
        assert isinstance(kernels, tuple)
        self.first = nn.Conv2d(in_channels, hidden_size, kernels[0], padding=1)
        self.rest = nn.ModuleList(nn.Conv2d(hidden_size, hidden_size, 3, padding=1) for _ in range(num_layers))
        self.norm = nn.BatchNorm2d(hidden_size)

    def forward(self, x, scale, bias=None):
        x = self.norm(self.first(x))
        for layer in self.rest:
            x = torch.relu(layer(x))
        return x.mean((2, 3)) * scale

class Passing(Net):
    def __init__(self, in_channels=3, **rest):
        super().__init__(in_channels, 8, 2, pretrained=False)
        Wanting(**rest)

class Wanting:
    def __init__(self, depth, classes):
        assert (depth, classes) == (2, 5)

class Strange(nn.Module):
    def __init__(self, strange):
        super().__init__()

class Asking(Net):
    def forward(self, x, whatever):
        return x

class Huge(Net):
    def __init__(self):
        super().__init__(3, 20000, pretrained=False)
"""

TIMM = {
    "timm/__init__.py": (
        "from timm.models import toy\n"
        "def create_model(name, pretrained=False):\n    return getattr(toy, name)(pretrained=pretrained)\n"
    ),
    "timm/models/__init__.py": "",
    "timm/models/_builder.py": (
        "def build_model_with_cfg(model_cls, variant, pretrained, model_cfg=None, **kwargs):\n"
        "    model = model_cls(**kwargs) if model_cfg is None else model_cls(cfg=model_cfg, **kwargs)\n"
        "    model.default_cfg = {'input_size': (3, 224, 224)}\n"
        "    return model\n"
    ),
    "timm/models/toy.py": """
from dataclasses import dataclass
from torch import nn
from ._builder import build_model_with_cfg

def register_model(function):
    return function

@dataclass
class Stage:
    d: int = 3
    c: int = 8

@dataclass
class Cfg:
    blocks: tuple = (Stage(6, 8), Stage(1, 16))

class Toy(nn.Module):
    def __init__(self, cfg, num_classes=10, act=nn.ReLU):
        super().__init__()
        self.layers = nn.ModuleList()
        last = 3
        for stage in cfg.blocks:
            for _ in range(stage.d):
                self.layers.append(nn.Conv2d(last, stage.c, 3, padding=1))
                last = stage.c

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.mean((2, 3))

@register_model
def toy_wide(pretrained=False, **kwargs):
    return build_model_with_cfg(Toy, 'toy_wide', pretrained, model_cfg=Cfg(), **dict(num_classes=7, **kwargs))
""",
}

TORCHVISION = {
    "torchvision/__init__.py": "from torchvision import _meta_registrations\nfrom torchvision.layers import Frozen\n",
    "torchvision/layers.py": "Frozen = 1\n",
    "torchvision/_meta_registrations.py": (
        "import torch\n"
        '@torch.library.register_fake("torchvision::nms")\ndef nms(a):\n    return a\n'
        '@torch.library.register_fake("torchvision::qnms")\ndef qnms(a):\n    return a\n'
    ),
    "wanting.py": "from torchvision import Frozen\n\n\ndef maker():\n    return Frozen\n",
    "transformers.py": "from torchvision import Frozen\n\n\nclass ToyModel:\n    frozen = Frozen\n",
}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def options(model: torch.nn.Module, given: Mapping[str, Any], name: str) -> Sequence[Option]:
    known: dict[str, Sequence[Option]] = {
        "x": [Leaf("float32", ("batch", 1, "height", "width"))],
        "scale": [Constant(2.0)],
    }
    return known.get(name, ())


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Classes]:
    """A package of networks of its own."""
    written(tmp_path, {"toy_nets_of_a_test.py": NETS})
    monkeypatch.syspath_prepend(str(tmp_path))
    known = {"in_channels": 2, "pretrained": False, "kernels": 3, "depth": 2, "classes": 5}
    yield Classes("toy_nets_of_a_test", "toy_nets_of_a_test", (known,), options, overriding=("pretrained", "kernels"))
    sys.modules.pop("toy_nets_of_a_test", None)
    imported.cache_clear()


def test_names_and_tags_are_read_from_a_packages_files(tmp_path: Path) -> None:
    written(tmp_path, FILES)
    assert timm_names(tmp_path / "timm") == {"resnet18": ("resnet",), "resnet50": ("resnet",), "vit_tiny": ("vit",)}
    found = diffusers_names(tmp_path / "diffusers")
    assert found == {"MultiAdapter": ("adapter",), "T2IAdapter": ("adapter",), "UNet2DModel": ("unets",)}
    assert geometric_names(tmp_path / "torch_geometric") == {"GAT": ("basic_gnn",), "GCN": ("basic_gnn",)}
    assert monai_names(tmp_path / "monai") == {"UNet": ("unet",)}


def test_listing_imports_neither_torch_nor_the_package(tmp_path: Path) -> None:
    packages = ["timm", "diffusers", "torch_geometric", "monai"]
    written(tmp_path, {**FILES, **{f"{one}/__init__.py": "raise SystemExit('imported')" for one in packages}})
    words = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});"
        "from batch_export.collections.registered import collection;"
        f"found = [len(collection(name).names()) for name in {packages}];"
        "assert found == [3, 3, 2, 1], found;"
        f"assert not {{'torch', *{packages}}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", words], check=True)


def test_each_shipped_collection_says_which_versions_its_descriptions_depend_on() -> None:
    for name, one in COLLECTIONS.items():
        assert {"torch", one.library} <= set(one.packages), name


def test_a_class_is_made_small_and_called_with_what_its_parameters_names_say(nets: Classes) -> None:
    config = describe(nets, "Net")
    assert config["arguments"] == {"in_channels": 2, "pretrained": False, "hidden_size": 64, "num_layers": 2}
    assert config["constants"] == {"scale": 2.0}
    assert config["inputs"]["x"]["shape"] == ["batch", 2, "height", "width"], "as the convolution says"
    assert list(config["axes"]) == ["batch", "height", "width"]
    first, second = (build("toy_nets_of_a_test", "Net", config["arguments"]) for _ in range(2))
    assert float(first.get_parameter("norm.weight").detach().std()) > 0
    assert torch.equal(first.get_parameter("norm.weight"), second.get_parameter("norm.weight"))


def test_a_class_that_changes_its_arguments_changes_copies() -> None:
    class Turned(torch.nn.Linear):
        def __init__(self, widths: list[int]) -> None:
            super().__init__(*widths)
            widths.reverse()

    given = {"widths": [2, 3]}
    assert [made(Turned, given).in_features for _ in range(2)] == [2, 2]


def test_what_a_class_passes_on_is_given_where_another_class_requires_it(nets: Classes) -> None:
    assert describe(nets, "Passing")["arguments"] == {"depth": 2, "classes": 5}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Strange", "no rule says what its argument 'strange' is"),
        ("Asking", "no rule says what forward's 'whatever' is"),
        ("Huge", "narrow: it has [0-9,]+ parameters, and at most 50,000,000 are built"),
    ],
)
def test_a_class_that_has_no_description_has_a_reason(nets: Classes, name: str, reason: str) -> None:
    with pytest.raises(UndescribedError, match=reason):
        describe(nets, name)


def test_a_package_that_cannot_be_imported_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(
        tmp_path, {"broken_of_a_test.py": "try:\n    1 / 0\nexcept Exception as e:\n    raise OSError('odd') from e\n"}
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = Classes("broken_of_a_test", "broken_of_a_test", ({},), options)
    with pytest.raises(UndescribedError, match=r"^broken_of_a_test cannot be imported here: ZeroDivisionError: "):
        describe(broken, "Net")


def test_torchvisions_python_is_imported_where_its_compiled_part_is_not_loaded(tmp_path: Path) -> None:
    written(tmp_path, TORCHVISION)
    forked = f"""
import os, sys
sys.path.insert(0, {str(tmp_path)!r})
from batch_export.collections.small_models.importing import imported
from batch_export.collections.transformers.building import class_of
from batch_export.config.model import model_spec
from batch_export.runner.preload import preload
from batch_export.stages.model import found_builder
LEAF = {{"dtype": "float32", "shape": [1]}}
ways = {{
    "a package of a collection": lambda: imported("wanting").Frozen == 1,
    "a class of transformers": lambda: class_of("ToyModel", object).frozen == 1,
    "what a server preloads": lambda: preload(["transformers", "transformers.absent"]) or "transformers" in sys.modules,
    "a builder that requires a library": lambda: found_builder(
        model_spec("toy", {{"_target_": "wanting.maker", "requires": ["wanting"], "inputs": {{"x": LEAF}}}})
    )() == 1,
}}
for name, way in ways.items():
    child = os.fork()
    if not child:
        os._exit(0 if way() else 1)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    subprocess.run([sys.executable, "-c", forked], check=True)


def test_a_registered_model_of_timm_has_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TIMM)
    for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    imported.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        config = describe_timm("toy_wide")
        spec = model_spec("timm:toy_wide", config)
        assert config["changes"] == {"cfg": {"blocks": [{"d": 2}, None]}}
        assert list(config["axes"]) == ["batch", "height", "width"]
        assert [layer.out_channels for layer in models.build(spec).layers] == [8, 8, 16]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
            del sys.modules[name]
        imported.cache_clear()


def test_changes_are_laid_over_what_they_name() -> None:
    assert laid_over({"a": 1, "b": [1, 2, 3]}, {"b": [None, 5]}) == {"a": 1, "b": [1, 5]}
    assert laid_over((3, 4), [1, 2]) == (1, 2)
    assert laid_over(7, None) == 7
    assert laid_over("wide", "narrow") == "narrow"


def test_errors_say_what_an_image_has_to_be() -> None:
    image = Leaf("float32", ("batch", 3, "height", "width"))
    attempt = Attempt({"x": image}, {"batch": 2, "height": 64, "width": 64})
    with pytest.raises(RuntimeError) as raised:
        torch.nn.Conv2d(4, 2, 3)(torch.randn(2, 3, 64, 64))
    assert channels_said(str(raised.value), {"x": [2, 3, 64, 64]}) == ("x", 4)
    found = repaired(attempt, raised.value)
    assert found is not None
    assert found.leaves["x"].shape == ("batch", 4, "height", "width")
    found = repaired(attempt, ValueError("Input size should be 256 x 128 when it is fast"))
    assert found is not None
    assert (found.sizes["height"], found.sizes["width"]) == (256, 128)
    with pytest.raises(RuntimeError) as raised:
        torch.nn.AvgPool2d(80)(torch.randn(2, 3, 64, 64))
    assert is_too_small(str(raised.value))
    found = repaired(attempt, raised.value)
    assert found is not None
    assert found.sizes == {"batch": 2, "height": 128, "width": 128}
    assert sides_said("a size of 3") is None
    assert arguments_lacking("f() missing 2 required positional arguments: 'a' and 'b'") == ["a", "b"]


def test_axes_of_a_rotation_share_out_a_narrow_head() -> None:
    class Config:
        def __init__(self) -> None:
            self.num_attention_heads, self.attention_head_dim, self.axes_dims_rope = 24, 128, (16, 56, 56)
            self.vace_layers, self.num_layers, self.block_out_channels = [0, 5, 10], 40, (128, 256, 512)
            self.layers_per_block = 4

    small = shrink(Config(), "narrow")
    assert sum(small["axes_dims_rope"]) == small["attention_head_dim"] == 16
    assert all(one % 2 == 0 for one in small["axes_dims_rope"])
    assert max(small["vace_layers"]) < small["num_layers"] <= 3
    assert small["layers_per_block"] == 2
    assert small["block_out_channels"] == (16, 32, 64)


REAL = [
    ("timm", describe_timm, "resnet26", ["batch", "height", "width"]),
    ("timm", describe_timm, "vit_base_patch16_224", ["batch"]),
    ("timm", describe_timm, "efficientnet_b0", ["batch", "height", "width"]),
    ("diffusers", describe_diffusers, "UNet2DConditionModel", ["batch", "height", "target", "width"]),
    ("diffusers", describe_diffusers, "AutoencoderKL", ["batch", "height", "width"]),
    ("torch_geometric", describe_geometric, "GCN", ["edges", "nodes"]),
    ("torch_geometric", describe_geometric, "GAT", ["edges", "nodes"]),
    ("monai", describe_monai, "UNet", ["batch", "height", "width"]),
    ("monai", describe_monai, "ViT", ["batch"]),
]


@pytest.mark.parametrize(("package", "described", "name", "axes"), REAL, ids=[f"{row[0]}-{row[2]}" for row in REAL])
def test_a_model_of_a_real_package_runs_at_all_its_sizes(
    package: str, described: Any, name: str, axes: list[str]
) -> None:
    try:
        imported(package)
    except UnimportableError as error:
        pytest.skip(str(error))
    config = described(name)
    spec = model_spec(f"{package}:{name}", config)
    assert sorted(axis.name for axis in spec.axes) == axes
    module = models.build(spec)
    for index in range(2):
        sizes = {axis.name: axis.check[index] for axis in spec.axes}
        with torch.no_grad():
            assert module(**models.example_inputs(spec, sizes)) is not None
