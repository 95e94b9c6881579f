"""What a run asks of a remote store: requests and seconds of 48 cells, against an S3 server on loopback.

Cold: an empty remote store is filled. From the remote: another machine's run, whose own store is empty. Warm: that
machine's next run. Each request is answered `--delay-ms` late, as by a server that is far away. Stand-in stages (those
of the tests) take the place of exports. Needs moto, flask and s3fs; `PYTHONPATH=tests python -m benchmarks.remote`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class Slow:
    """A WSGI application in front of another: counts requests, and lets them wait."""

    def __init__(self, app: Callable[..., Iterable[bytes]], delay_s: float) -> None:
        self._app = app
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def counted(status: str, *rest: Any) -> Any:
            with self._lock:
                self.counts[f"{environ['REQUEST_METHOD']} {status[:3]}"] += 1
            return start(status, *rest)

        time.sleep(self._delay_s)
        return self._app(environ, counted)


def serve(delay_s: float) -> tuple[Slow, str]:
    """Starts the server on a thread that ends with this process; returns its counter and its address."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = Slow(DomainDispatcherApplication(create_backend_app), delay_s)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return app, f"http://127.0.0.1:{server.server_port}"


def main() -> int:
    """Prints a row per run."""
    parser = argparse.ArgumentParser(description="What a run asks of a remote store.")
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    asked = parser.parse_args()
    app, address = serve(asked.delay_ms / 1000)
    os.environ.update(
        AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1", AWS_ENDPOINT_URL=address
    )
    import boto3
    from sweeping import Listener, cells, model, sweep  # the tests' folder is on PYTHONPATH

    from batch_export.spec import StoreSpec

    boto3.client("s3").create_bucket(Bucket="results")
    work = cells([model(f"model{index}") for index in range(asked.models)], (18, 20, 21, 23), ("static", "full"))
    print(f"{len(work)} cells, {asked.delay_ms:g} ms a request\n")
    print("| run | requests | wall, s | actions |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-remote-") as name:
        for kind, machine in (("cold", "one"), ("from the remote", "two"), ("warm", "two")):
            app.counts.clear()
            began, listener = time.monotonic(), Listener()
            result = sweep(
                Path(name) / machine, work, store=StoreSpec(remote="s3://results/team"), listener=listener,
                preload=("s3fs",),
            )  # fmt: skip
            said = ", ".join(f"{count} {what}" for what, count in sorted(app.counts.items())) or "none"
            counts = f"ran {result.counts['ran']}, cached {result.counts['cached']}"
            print(f"| {kind} | {app.counts.total()} ({said}) | {time.monotonic() - began:.1f} | {counts} |", flush=True)
            if any(record.verdict != "pass" for record in result.records) or listener.messages:
                raise RuntimeError(f"the run did not go well: {listener.messages}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
