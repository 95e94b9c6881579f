"""The command line: verbs, and the sweep when there is no verb. Arguments go in, an exit code comes out.

0 all as expected, 1 unexpected results, 2 usage or configuration, 3 the run could not finish, 130 interrupted. torch is
never imported here: everything that needs it runs in children of the runner.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
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

from batch_export.cli import standard_streams
from batch_export.cli.known import asks_for_words, is_last_failed, module_of, verbs
from batch_export.cli.sweep_flags import SweepFlags, taken_out
from batch_export.config.compose import Composed, compose_and_call, takes_value
from batch_export.errors import BatchExportError, RunError, UsageError
from batch_export.version import __version__
from batch_export.words import nearest

EXIT_INTERRUPTED = 130
_ELSEWHERE = "make room where it goes, or send it elsewhere; a run's own files are in its folder"
EXIT_BROKEN_PIPE = 141
"""128 and the number of SIGPIPE."""


def main(argv: Sequence[str]) -> int:
    """Runs one command line; `argv[0]` is the program, as in `sys.argv`."""
    standard_streams.open_closed_ones()
    with standard_streams.errors_forgiven(), _noting_interrupt() as interrupted:
        try:
            code = _dispatch(argv[0], list(argv[1:]))
            sys.stdout.flush()  # a reader that went away is noticed here, not when Python ends
            return code
        except BatchExportError as error:
            if not interrupted.is_set():  # what reads a configuration takes Ctrl-C for a mistake in it
                return _told(error)
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:  # the reader of our output went away, e.g. `plan | head`
            return _without_reader()
        except SystemExit as ended:  # rich's way to say the same; argparse ends with --help this way
            if isinstance(ended.__context__, BrokenPipeError):
                return _without_reader()
            raise
        except Exception as error:
            reason = standard_streams.why_unwritable(error)
            if reason:
                code = _told(RunError(f"the output cannot be written: {reason}. Next step: {_ELSEWHERE}"))
                standard_streams.let_go()
                return code
            # Ctrl-C in the middle of an import comes out as an ImportError: extension modules raise what they like.
            if not interrupted.is_set():
                traceback.print_exc()
                print("error: batch_export itself failed; the traceback above says where", file=sys.stderr)
                return 3
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _told(error: BatchExportError) -> int:
    """Says what went wrong; returns the exit code."""
    from batch_export.error_codes import code_of  # lazy: all explanations come with it, and most runs need none

    with contextlib.suppress(OSError):  # there may be no room for it either
        print(f"error: {error} [{code_of(type(error))}]", file=sys.stderr)
    return error.exit_code


def _without_reader() -> int:
    """Lets go of output that nobody reads any more; returns what a shell says of other tools that end this way."""
    standard_streams.let_go()
    return EXIT_BROKEN_PIPE


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
    if asks_for_words(arguments):
        from batch_export.cli import completion  # lazy: only shells ask

        completion.offer()
    arguments = verb_first(arguments)
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if not word or "=" in word or word[0] in "-+~":
        asked = taken_out(arguments)
        if asked.nothing_to_do:
            print(asked.nothing_to_do)
            return asked.exit_code
        command = _command(program, asked.typed)
        return compose_and_call(lambda composed: _sweep(composed, command, asked), asked.words, leave_no_trace=False)
    if word in verbs():
        stray = next((flag for flag in rest if is_last_failed(flag)), None)
        if stray is not None:
            raise UsageError(f"{stray} is for a sweep and does not go with the verb {word!r}; leave one of them out")
        verb = importlib.import_module(f"batch_export.cli.{module_of(word)}")  # lazy: only the one that is asked for
        return int(verb.run(rest))
    known = tuple(verbs())
    near = nearest(word, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"verbs: {', '.join(known)}"
    raise UsageError(f"Unknown verb {word!r} ({hint}); `--help` shows what there is")


def _help() -> str:
    from batch_export.cli.manual import help_text  # lazy: only `--help` shows it

    return help_text()


def verb_first(arguments: Sequence[str]) -> list[str]:
    """Returns the words with the verb at the front: flags and overrides may stand before it.

    What stood before it comes after all else. A word that is the value of a flag before it is no verb.
    """
    places = [index for index, word in enumerate(arguments) if word in verbs()]
    if not places or places[0] == 0:
        return list(arguments)
    if not all(_is_option(arguments, index) for index in range(places[0])):
        return list(arguments)  # a word that is neither comes first, and is refused by its name
    free = [index for index in places if not takes_value(arguments[index - 1])]
    alone = [index for index in free if not arguments[index - 1].startswith("-") or "=" in arguments[index - 1]]
    place = (alone or free or places)[0]
    if not free:
        return list(arguments)
    return [arguments[place], *arguments[place + 1 :], *arguments[:place]]


def _is_option(arguments: Sequence[str], index: int) -> bool:
    """Whether a word is a flag, an override, or stands where a flag's value may."""
    word = arguments[index]
    return word[:1] in ("-", "+", "~") or "=" in word or (index > 0 and arguments[index - 1].startswith("-"))


def _sweep(composed: Composed, command: str, asked: SweepFlags) -> int:
    from batch_export.sweeps.course import sweep_composed  # lazy: help and verbs do without the runner and all reports

    return sweep_composed(composed, command, brief=asked.brief, only=asked.only)


def _command(program: str, arguments: Sequence[str]) -> str:
    """The command line as it can be typed again."""
    if Path(program).name == "__main__.py":
        python = "python" if shutil.which("python") == sys.executable else sys.executable
        start = [python, "-m", "batch_export"]
    else:
        start = [Path(program).name if shutil.which(Path(program).name) else program]
    return shlex.join([*start, *arguments])
