"""Makes a checkout's `models/` folder importable as `batch_export.zoo`, the name that it has in a wheel.

Not part of the wheel, where `batch_export/zoo/` is the folder itself. Imports nothing of the zoo.
"""

from __future__ import annotations

from batch_export.sources.places import models_dir

__path__ = [str(models_dir())]
