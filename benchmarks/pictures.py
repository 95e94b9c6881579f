"""The pictures of the tutorial, of a run: `python -m benchmarks.pictures RUN`, with Chromium on the path.

A run's folder arrives; its table as `docs/pictures/terminal.svg` and its page as `docs/pictures/report.png` leave.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from batch_export.api.sweep import open_run
from batch_export.report.rows import rows_of
from batch_export.report.terminal import tell

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def main(run: str) -> None:
    """Writes both pictures.

    Raises:
        SystemExit: there is no Chromium.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("no chromium on the path (Debian: apt-get install chromium)")
    opened = open_run(run)
    PICTURES.mkdir(exist_ok=True)
    console = Console(record=True, width=84, file=io.StringIO(), force_terminal=True)
    tell(console, rows_of(opened.records), opened.summary, opened.folder, None)
    drawn = console.export_svg(title="python -m batch_export")
    without_fonts = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # they would be fetched
    (PICTURES / "terminal.svg").write_text(without_fonts, encoding="utf-8")
    page = (opened.folder / "report.html").absolute().as_uri()
    shot = f"--screenshot={PICTURES / 'report.png'}"
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1100,620",
            shot,
            page,
        ],
        check=True,
    )


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "latest")
