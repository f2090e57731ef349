"""
GET /debug/pprof/profile: a sampling profile of the stacks of all threads.

The looking is done by a thread of its own, so the broker goes on with its work; it loses about a hundredth of its time
to it. What is found is a line for each stack, outermost call first, and how often it was seen:

    MainThread;nsqtw.tap:main_nsqd;...;nsqtw.runtime.pump:Pump._turn;nsqtw.core.broker:Broker.commit 17

the "folded" format that makers of flame graphs read. A thread that waits is seen where it waits, in `poll` or `wait`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

SAMPLE_SECONDS = 0.01


def sample(seconds: float, is_wanted: Callable[[], bool]) -> Counter[str]:
    """Sample the stacks of the other threads for `seconds`, as long as `is_wanted`. Returns how often each was seen."""
    stacks: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while is_wanted():
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        names.pop(threading.get_ident(), None)
        for ident, frame in sys._current_frames().items():
            if ident in names:
                stacks[";".join([names[ident], *reversed(list(_callers(frame)))])] += 1
        if time.monotonic() >= end:
            break
        time.sleep(SAMPLE_SECONDS)
    return stacks


def folded(stacks: Counter[str]) -> str:
    """Format the result of `sample`, the most frequent stacks first."""
    return "".join(f"{stack} {count}\n" for stack, count in stacks.most_common())


class Profiler:
    """
    Samples in a thread of its own, once at a time. `later` calls a function in the thread that starts it, as a
    reactor's callFromThread does.
    """

    def __init__(self, later: Callable[[Callable[[], object]], object]) -> None:
        self._later = later
        self._thread: threading.Thread | None = None

    def start(self, seconds: float, is_wanted: Callable[[], bool], done: Callable[[str], object]) -> bool:
        """
        Start; `done` is called later with the text, which covers less time if `is_wanted` turns false. Returns False,
        without starting, while another profile runs.
        """
        if self._thread is not None and self._thread.is_alive():
            return False

        def run() -> None:
            text = folded(sample(seconds, is_wanted))
            self._later(lambda: done(text))

        # A daemon: a broker that is told to stop does not wait for it.
        self._thread = threading.Thread(target=run, name="profiler", daemon=True)
        self._thread.start()
        return True


def _callers(frame: FrameType | None) -> Iterator[str]:
    """The calls of a stack, innermost first."""
    while frame is not None:
        yield f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
        frame = frame.f_back
