"""`python -m batch_export.legalise` prints docs/opsets.md, without what was measured."""

from __future__ import annotations

import sys

from batch_export.legalise.table import page

if __name__ == "__main__":
    sys.stdout.write(page())
