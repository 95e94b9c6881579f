"""Peak memory of an export: of a model with large weights, and of one in fake mode, each in a process of its own.

Targets: at most 1.1 times the weights for the export of a 2 GB model into a file with external data, measured from a
process that has exported a tiny model already (so that libraries do not count) and holds no model yet; at most 300 MB
above the process in fake mode. Peak resident memory is the kernel's own figure (`VmHWM`), reset before the model is
built. Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import torch

from batch_export import enable_fake_mode, export
from batch_export.exporter.api import warm

LAYERS = 32
TARGET_TIMES = 1.1
TARGET_FAKE_MB = 300.0


class Stack(torch.nn.Module):
    """Square linear layers whose weights take `size_bytes` together."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        width = int((size_bytes / LAYERS / 4) ** 0.5)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(LAYERS))
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32[batch, width] -> float32[batch, width]."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def _status(field: str) -> int:
    """A field of `/proc/self/status` in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


def measure(size_bytes: int, fake: bool) -> dict[str, int]:
    """Exports in this process; returns bytes: of the weights, before the model was built, and at the peak."""
    warm()
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = _status("VmRSS")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if fake:
            with enable_fake_mode():
                model = Stack(size_bytes).eval()
                x = torch.ones(2, model.width)
            program = export(model, (x,), dynamic_shapes=({0: "batch"},))
            program.save(path, include_initializers=False)
        else:
            model = Stack(size_bytes).eval()
            export(model, (torch.ones(2, model.width),), path, dynamic_shapes=({0: "batch"},))
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return {"weights": weights, "before": before, "peak": _status("VmHWM")}


def in_child(size_bytes: int, fake: bool) -> dict[str, int]:
    """`measure` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--child", "--bytes", str(size_bytes)]
    done = subprocess.run([*command, *(["--fake"] if fake else [])], check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, int])


def main() -> int:
    """Runs both measurements, prints them, and returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=2 * 1024**3, help="size of the weights (default: 2 GB)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fake", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(msgspec.json.encode(measure(given.bytes, given.fake)).decode())
        return 0
    real, fake = in_child(given.bytes, fake=False), in_child(given.bytes, fake=True)
    times = (real["peak"] - real["before"]) / real["weights"]
    extra = (fake["peak"] - fake["before"]) / 1e6
    print("| export | weights, MB | process before, MB | peak, MB | figure | target |")
    print("|---|---|---|---|---|---|")
    for name, row, figure, target in (
        ("with weights", real, f"{times:.2f} x the weights", f"{TARGET_TIMES} x"),
        ("fake mode", fake, f"{extra:.0f} MB above", f"{TARGET_FAKE_MB:.0f} MB"),
    ):
        sizes = " | ".join(f"{row[key] / 1e6:,.0f}" for key in ("weights", "before", "peak"))
        print(f"| {name} | {sizes} | {figure} | {target} |")
    return 0 if times <= TARGET_TIMES and extra <= TARGET_FAKE_MB else 1


if __name__ == "__main__":
    sys.exit(main())
