"""The command line: verbs, and the sweep when there is no verb. Arguments go in, an exit code comes out.

0 all as expected, 1 unexpected results, 2 usage or configuration, 3 the run could not finish, 130 interrupted. torch is
never imported here: everything that needs it runs in children of the runner.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from omegaconf import OmegaConf

from batch_export.cli import completion
from batch_export.cli.known import verbs
from batch_export.config.compose import Composed, compose_and_call
from batch_export.errors import BatchExportError, UsageError
from batch_export.version import __version__
from batch_export.words import nearest

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Runs one command line; `argv[0]` is the program, as in `sys.argv`."""
    with _noting_interrupt() as interrupted:
        try:
            return _dispatch(argv[0], list(argv[1:]))
        except BatchExportError as error:
            from batch_export.error_codes import code_of  # lazy: all explanations come with it, and most runs need none

            print(f"error: {error} [{code_of(type(error))}]", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:  # the reader of our output went away, e.g. `plan | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception:
            # Ctrl-C in the middle of an import comes out as an ImportError: extension modules raise what they like.
            if not interrupted.is_set():
                traceback.print_exc()
                print("error: batch_export itself failed; the traceback above says where", file=sys.stderr)
                return 3
    print("interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


@contextmanager
def _noting_interrupt() -> Iterator[threading.Event]:
    """Remembers that Ctrl-C came, whatever becomes of the KeyboardInterrupt on its way up."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.set()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _dispatch(program: str, arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"batch_export {__version__}")
        return 0
    OmegaConf.register_new_resolver("batch_export_help", _help, replace=True)
    if completion.is_query(arguments):
        completion.offer()
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if not word or "=" in word or word[0] in "-+~":
        command = _command(program, arguments)
        return compose_and_call(lambda composed: _sweep(composed, command), arguments, leave_no_trace=False)
    if word in verbs():
        verb = importlib.import_module(f"batch_export.cli.{word}")  # lazy: only the one that is asked for
        return int(verb.run(rest))
    known = tuple(verbs())
    near = nearest(word, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"verbs: {', '.join(known)}"
    raise UsageError(f"Unknown verb {word!r} ({hint}); `--help` shows what there is")


def _help() -> str:
    from batch_export.cli.manual import help_text  # lazy: only `--help` shows it

    return help_text()


def _sweep(composed: Composed, command: str) -> int:
    from batch_export.sweeps.course import sweep_composed  # lazy: help and verbs do without the runner and all reports

    return sweep_composed(composed, command)


def _command(program: str, arguments: Sequence[str]) -> str:
    """The command line as it can be typed again."""
    if Path(program).name == "__main__.py":
        python = "python" if shutil.which("python") == sys.executable else sys.executable
        start = [python, "-m", "batch_export"]
    else:
        start = [Path(program).name if shutil.which(Path(program).name) else program]
    return shlex.join([*start, *arguments])
