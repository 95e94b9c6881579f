"""The name of `repro/attempt.py` in `repro.py` scripts of folders that were made before it moved there."""

from batch_export.exporter.repro.attempt import symptom_in

__all__ = ["symptom_in"]
