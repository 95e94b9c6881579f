"""Environment variables by which Python, or torch, works otherwise, whatever a program reads: every model stands on
them.

An environment arrives, names and values leave. What changes no result is left out: bytecode, buffers, traces. So is
where modules are found: files and packages are recorded by what they are.
"""

from __future__ import annotations

from collections.abc import Mapping

HASHING = "PYTHONHASHSEED"
NAMES = (
    HASHING,
    "PYTHONOPTIMIZE",
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "PYTHONUTF8",
    "PYTHONWARNDEFAULTENCODING",
    "PYTHONINTMAXSTRDIGITS",
    "PYTHON_CPU_COUNT",
    "PYTHON_GIL",
    "PYTORCH_JIT",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_CBWR",
    "NVIDIA_TF32_OVERRIDE",
)
_OF_CHILDREN = {HASHING: "0"}
"""Values that children have set for them: a builder that goes through a set of texts makes the same model in each."""


def value(name: str, environment: Mapping[str, str]) -> str:
    """Returns what a child has of one of `NAMES`; empty where Python works as it does by itself."""
    return environment.get(name) or _OF_CHILDREN.get(name, "")


def unusual(environment: Mapping[str, str]) -> list[str]:
    """Returns those of `NAMES` by which children work otherwise than in an environment that says nothing."""
    return [name for name in NAMES if value(name, environment) != value(name, {})]
