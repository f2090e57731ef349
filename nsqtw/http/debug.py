"""
/debug/...: information about the process of a running broker, on the paths of Go's profiles in nsqd.

    /debug/pprof/               a page that lists the others
    /debug/pprof/goroutine      the stack of every thread, and the reactor's pending calls
    /debug/pprof/heap           objects by type, with the garbage collector's counts
    /debug/pprof/threadcreate   the threads
    /debug/pprof/block          what the reactor waits for
    /debug/pprof/profile        where the time goes in the next ?seconds= (profile)
    /debug/pprof/cmdline        the words that started it
    /debug/pprof/symbol         nothing: addresses have no meaning here

All are texts, also where Go's tool would read a binary profile. A handler runs in the reactor thread, so what it shows
does not change while it looks.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from nsqtw.gocompat.text import quoted
from nsqtw.http.endpoints import A_PAGE, A_TEXT, BAD_QUERY, FAILED, Method, Parameter, Section, endpoint
from nsqtw.http.profile import Profiler
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, Refused, failure, page, plain, report
from nsqtw.options.redaction import shown_words
from nsqtw.runtime.memory import all_objects, check_all
from nsqtw.runtime.reactor import Reactor

_PPROF = "/debug/pprof/"
_DEFAULT_SECONDS = 30
_TYPES_SHOWN = 100
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)")
_INT64 = range(-(2**63), 2**63)
_INT64_DIGITS = 19

_NO_SYMBOLS = report("num_symbols: 1\n")
_DONE = failure(500, "INTERNAL_ERROR", detail="Done. nsqd answers this with an error, too.")
_NO_ADDRESSES = "nothing: addresses have no meaning here"
_SECONDS = Parameter("seconds", {"type": "integer", "minimum": 1, "default": _DEFAULT_SECONDS})
_RATE = Parameter("rate", {"type": "integer"})
_IN_USE = report("Could not enable CPU profiling: cpu profiling already in use\n", status=500)


class HasReactor(Protocol):
    """An object that knows the reactor."""

    @property
    def reactor(self) -> Any:
        """The reactor."""


def _report(name: str, summary: str, method: str = "GET", **fields: Any) -> Callable[[Method], Method]:
    """Declare /debug/pprof/`name`: a text, without a line in the log."""
    return endpoint(method, _PPROF + name, summary, logged=False, is_change=True, **{"success": A_TEXT, **fields})


class Debugging(Section):
    """Shows the process that runs the reactor of `context`."""

    def __init__(self, context: HasReactor) -> None:
        self._reactor = context.reactor
        self._profiler = Profiler(lambda call: self._reactor.callFromThread(call))

    @_report("", "A page that lists the others", success=A_PAGE)
    def index(self, request: HttpRequest) -> Answer:
        """GET /debug/pprof/"""
        return page(_index())

    @_report("block", "what the reactor waits for")
    def block(self, request: HttpRequest) -> Answer:
        """GET /debug/pprof/block"""
        return report(waited_for(self._reactor))

    @_report("cmdline", "the words that started this process, with NUL between them")
    def cmdline(self, request: HttpRequest) -> Answer:
        """GET /debug/pprof/cmdline"""
        return report("\0".join(shown_words(sys.argv)))

    @_report("goroutine", "the stack of every thread, and the calls the reactor is going to make")
    def goroutine(self, request: HttpRequest) -> Answer:
        """GET /debug/pprof/goroutine"""
        return report(stacks(self._reactor))

    @_report("heap", "objects by type, and what the garbage collector counts")
    def heap(self, request: HttpRequest) -> Answer:
        """GET /debug/pprof/heap"""
        return report(objects())

    @_report("symbol", _NO_ADDRESSES)
    @_report("symbol", _NO_ADDRESSES, "POST")
    def symbol(self, request: HttpRequest) -> Answer:
        """GET and POST /debug/pprof/symbol"""
        return _NO_SYMBOLS

    @_report("threadcreate", "the threads")
    def threadcreate(self, request: HttpRequest) -> Answer:
        """GET /debug/pprof/threadcreate"""
        return report(threads())

    @_report(
        "profile",
        "where the time goes from now on, in ?seconds= (30): lines for a flame graph",
        optional=(_SECONDS,),
        errors={**BAD_QUERY, 500: []},
    )
    def profile(self, request: HttpRequest) -> Answer | None:
        """GET /debug/pprof/profile"""
        try:
            seconds = _integer(parameters(request.query).get("seconds", ""))
        except ValueError:
            seconds = 0
        has_started = self._profiler.start(
            seconds if seconds > 0 else _DEFAULT_SECONDS,
            lambda: request.is_patient,
            lambda samples: request.answer_later(report(samples)),
        )
        return None if has_started else _IN_USE

    @endpoint(
        "PUT",
        "/debug/setblockrate",
        "Nothing; the answer to a good rate is an error, as nsqd's is",
        required=(_RATE,),
        success=None,
        errors={400: [], **FAILED},
    )
    def set_block_rate(self, request: HttpRequest) -> Answer:
        """PUT /debug/setblockrate. There is no such rate."""
        try:
            rate = parameters(request.query).get("rate", "")
        except Refused:
            rate = ""  # nsqd does not look at what it could not read
        try:
            _integer(rate)
        except ValueError as error:
            shown = quoted(rate.encode("utf-8", "surrogateescape"))
            return plain(400, f"invalid block rate : strconv.Atoi: parsing {shown}: {error}")
        return _DONE

    @endpoint(
        "POST",
        "/debug/freememory",
        "Collect garbage; the answer is an error, as nsqd's is",
        success=None,
        errors=FAILED,
    )
    def free_memory(self, request: HttpRequest) -> Answer:
        """POST /debug/freememory"""
        check_all()
        return _DONE


def _index() -> str:
    """Return the page that lists the reports."""
    names = [(one.path.removeprefix(_PPROF), one.summary) for one in Debugging.endpoints() if one.method == "GET"]
    rows = [f'<dt><a href="{name}">{name}</a></dt><dd>{summary}</dd>\n' for name, summary in sorted(names) if name]
    head = "<html><head><title>/debug/pprof/</title></head><body><h1>/debug/pprof/</h1><dl>\n"
    return f"{head}{''.join(rows)}</dl></body></html>\n"


def stacks(reactor: Reactor) -> str:
    """The stack of every thread, innermost call last, and the reactor's pending calls, the next one first."""
    frames = sys._current_frames()
    lines = []
    for thread in threading.enumerate():
        lines.append(f"{_thread_text(thread)}\n")
        if thread.ident in frames:
            lines += traceback.format_stack(frames[thread.ident])
        lines.append("\n")
    lines.append(f"{type(reactor).__name__}, pending calls:\n")
    for call in sorted(reactor.getDelayedCalls(), key=lambda call: call.getTime()):
        name = _name_of(getattr(call, "func", call))
        lines.append(f"  in {call.getTime() - reactor.seconds():.3f} s: {name}\n")
    return "".join(lines)


def objects() -> str:
    """The objects the garbage collector knows, by type, those with the most bytes first; and its counts."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for item in all_objects():
        name = f"{type(item).__module__}.{type(item).__qualname__}"
        counts[name] += 1
        sizes[name] += sys.getsizeof(item)
    lines = [
        f"{counts.total()} objects of {sizes.total()} bytes, without what they refer to; no texts, bytes and numbers",
        *[f"generation {number}: {counted}" for number, counted in enumerate(gc.get_stats())],
        "",
        f"{'count':>10} {'bytes':>12} type",
        *[f"{counts[name]:>10} {size:>12} {name}" for name, size in sizes.most_common(_TYPES_SHOWN)],
    ]
    return "\n".join(lines) + "\n"


def threads() -> str:
    """The threads, a line each."""
    return "".join(f"{_thread_text(thread)}\n" for thread in threading.enumerate())


def waited_for(reactor: Reactor) -> str:
    """The descriptors that the reactor reads from and writes to, one per line."""
    waiting = [("read", reactor.getReaders()), ("write", reactor.getWriters())]
    return "".join(f"{what} {selectable!r}\n" for what, selectables in waiting for selectable in selectables)


def _thread_text(thread: threading.Thread) -> str:
    return f"thread {thread.name}, {thread.native_id}{', daemon' if thread.daemon else ''}"


def _integer(text: str) -> int:
    """A decimal 64-bit integer. ValueError, in the words of nsqd."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError("invalid syntax")
    if len(match[2]) > _INT64_DIGITS or int(text) not in _INT64:
        raise ValueError("value out of range")
    return int(text)


def _name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
