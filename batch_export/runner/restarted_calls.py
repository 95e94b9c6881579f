"""Signals that this process handles do not end the calls which the kernel holds until a listener has answered.

Nothing arrives; `signal` leaves with two functions that do a little more. A call that is held and that nobody has seen
yet is ended by a signal with a handler (EINTR), also one that never is otherwise: `os.stat`, `os.listdir`, an import.
Python and C take that for a file which is not there, as a `DataLoader`'s worker ends (SIGCHLD), say. The kernel begins
such a call again where the handler was set with SA_RESTART, which Python leaves out.

Signals that are there to end what waits stay as they are: the keyboard's, SIGTERM, and SIGALRM of an alarm that rings
once; one that rings again and again is a clock.
"""

from __future__ import annotations

import functools
import signal
from typing import Any

_ENDING = frozenset(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP") if hasattr(signal, name)
)


class RestartedCalls:
    """Sets SA_RESTART with every handler of Python's, from `begin` on; there is no way to stop."""

    def __init__(self) -> None:
        self._rings_again = False

    def begin(self) -> None:
        """Takes in the handlers that there are."""
        own, timer = signal.signal, signal.setitimer

        @functools.wraps(own)
        def handled(signalnum: Any, handler: Any) -> Any:
            earlier = own(signalnum, handler)
            self._restart(signalnum)
            return earlier

        @functools.wraps(timer)
        def timed(which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
            if which == signal.ITIMER_REAL:
                self._rings_again = interval > 0
                self._restart(signal.SIGALRM)
            return timer(which, seconds, interval)

        signal.signal, signal.setitimer = handled, timed
        for one in signal.valid_signals():
            self._restart(one)

    def _restart(self, number: int) -> None:
        """Sets or leaves out SA_RESTART for a signal with a handler of Python's."""
        if callable(signal.getsignal(number)) and number not in _ENDING:
            signal.siginterrupt(number, number == signal.SIGALRM and not self._rings_again)
