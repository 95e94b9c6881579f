"""Which results of the store are good enough for a run. A result as it was found arrives, yes or no leaves.

The parent, which looks results up, and its children, which execute what is missing, both go by this.
"""

from __future__ import annotations

from batch_export import steps
from batch_export.action import Mnemonic
from batch_export.store import Found


def serves(found: Found, mnemonic: Mnemonic, refresh: str) -> bool:
    """Whether a cached result is good enough: latencies may have to be measured again, see `MeasureSpec.refresh`.

    What this very run measured is: a run that is resumed measures nothing twice.
    """
    if mnemonic not in steps.ALONE or found.own or refresh == "missing":
        return True
    if refresh == "always":
        return False
    latency = found.result.facts.get("latency_ms")
    return not (isinstance(latency, dict) and latency.get("contended"))
