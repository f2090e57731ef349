"""/debug/..., and that a look into a broker does not stop it."""

from __future__ import annotations

import gc
import http.client
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from twisted.internet.testing import MemoryReactorClock

from nsqtw.http.debug import objects, stacks, waited_for
from nsqtw.http.profile import Profiler, sample
from tests.http.broker_fixture import Log, Web
from tests.process import NsqdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

NOT_FOUND = (404, "NOT_FOUND")
QUIRK = (500, "INTERNAL_ERROR")


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    """A running broker."""
    process = NsqdProcess(tmp_path_factory.mktemp("debug"))
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.close()


@pytest.mark.parametrize("name", ["goroutine", "heap", "threadcreate", "cmdline", "symbol"])
def test_a_report_is_a_text_that_no_browser_takes_for_a_page(name: str) -> None:
    with Log() as lines:
        reply = Web().get(f"/debug/pprof/{name}?debug=1")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "x-nsq-content-type" not in reply.headers
    assert lines == []


def test_the_index_leads_to_every_report() -> None:
    web = Web()
    reply = web.get("/debug/pprof/")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    for name in ("block", "cmdline", "goroutine", "heap", "profile", "symbol", "threadcreate"):
        assert f'href="{name}"'.encode() in reply.body
        assert web.ask("OPTIONS", f"/debug/pprof/{name}").status == 200
    assert web.get("/debug/pprof").headers["location"] == "/debug/pprof/"


@pytest.mark.parametrize(
    "path", ["/debug", "/debug/", "/debug/pprof/mutex", "/debug/pprof/trace", "/debug/pprof/allocs"]
)
def test_what_there_is_not(path: str) -> None:
    assert Web().get(path).outcome == NOT_FOUND


def test_symbol_knows_none() -> None:
    web = Web()
    assert web.get("/debug/pprof/symbol").body == b"num_symbols: 1\n"
    assert web.post("/debug/pprof/symbol", b"0x1+0x2").body == b"num_symbols: 1\n"
    assert web.ask("PUT", "/debug/pprof/symbol").headers["allow"] == "GET, OPTIONS, POST"


def test_objects_that_the_collector_does_not_look_at_are_counted_too() -> None:
    class Settled:
        pass

    settled = [Settled() for _ in range(12345)]
    gc.collect()
    gc.freeze()
    try:
        report = objects()
        assert re.search(r"^ *12345 .*Settled$", report, re.MULTILINE)
        assert not any(one is settled[0] for one in gc.get_objects()), "it is frozen again"
    finally:
        gc.unfreeze()


def test_stacks_and_pending_calls() -> None:
    reactor = MemoryReactorClock()
    reactor.callLater(2.5, test_stacks_and_pending_calls)
    reactor.callLater(0.25, sorted, [])
    text = stacks(reactor)
    assert "thread MainThread, " in text
    assert "in test_stacks_and_pending_calls\n" in text
    _, _, pending = text.partition("MemoryReactorClock, pending calls:\n")
    assert pending == "  in 0.250 s: sorted\n  in 2.500 s: test_stacks_and_pending_calls\n"


class Rare:
    """Nobody else makes these."""


def test_objects_by_type() -> None:
    kept = [Rare() for _ in range(7)]
    text = objects()
    assert "generation 2: {'collections': " in text
    sizes = [int(line.split()[1]) for line in text.partition(" type\n")[2].splitlines()]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 100
    assert len(kept) == 7


def test_what_a_reactor_waits_for() -> None:
    reactor = MemoryReactorClock()
    reactor.addReader("a reader")
    reactor.addWriter("a writer")
    assert waited_for(reactor) == "read 'a reader'\nwrite 'a writer'\n"


def test_freeing_memory_collects_garbage_and_answers_with_an_error() -> None:
    one = Rare()
    one.itself = one  # type: ignore[attr-defined]
    watched = weakref.ref(one)
    gc.disable()
    try:
        del one
        assert watched() is not None
        assert Web().post("/debug/freememory").outcome == QUIRK
        assert watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("rate", ["0", "1", "-5", "%2B5", "9223372036854775807", "00000000000000000000000001"])
def test_a_good_block_rate_is_answered_with_an_error(rate: str) -> None:
    reply = Web().ask("PUT", f"/debug/setblockrate?rate={rate}")
    assert reply.outcome == QUIRK
    assert reply.headers["x-nsq-content-type"] == "nsq; version=1.0"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", '"": invalid syntax'),
        ("?rate=", '"": invalid syntax'),
        ("?rate=a%22%0A", r'"a\"\n": invalid syntax'),
        ("?rate=1_0", '"1_0": invalid syntax'),
        ("?rate=+5", '" 5": invalid syntax'),
        ("?rate=9223372036854775808", '"9223372036854775808": value out of range'),
        ("?rate=%zz", '"": invalid syntax'),
        ("?rate=" + "9" * 5000, '"' + "9" * 5000 + '": value out of range'),
    ],
)
def test_a_bad_block_rate(query: str, why: str) -> None:
    reply = Web().ask("PUT", f"/debug/setblockrate{query}")
    assert (reply.status, reply.body.decode()) == (400, f"invalid block rate : strconv.Atoi: parsing {why}")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert "x-nsq-content-type" not in reply.headers


def test_what_changes_something_is_logged() -> None:
    with Log() as lines:
        Web().post("/debug/freememory")
    assert lines == ["info: 500 POST /debug/freememory (127.0.0.1:40974) 0s"]


class Sleeper:
    """A thread that is where `rest` waits, until `end`."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self.rest, name="sleeper")
        self._thread.start()

    def rest(self) -> None:
        self._is_over.wait(ANSWER_SECONDS)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_a_sample_is_the_stacks_of_the_other_threads() -> None:
    sleeper = Sleeper()
    try:
        found = sample(0.03, lambda: True)
    finally:
        sleeper.end()
    assert not [stack for stack in found if stack.startswith("MainThread;")]
    (stack,) = [stack for stack in found if stack.startswith("sleeper;")]
    assert f";{__name__}:Sleeper.rest;threading:Event.wait;" in stack
    assert found[stack] > 1


def test_sampling_ends_when_nobody_wants_it_any_more() -> None:
    sleeper = Sleeper()
    answers = iter([True, True, False])
    try:
        found = sample(1e9, lambda: next(answers))
    finally:
        sleeper.end()
    assert [count for stack, count in found.items() if stack.startswith("sleeper;")] == [2]


def test_there_is_one_profile_at_a_time() -> None:
    calls = SimpleQueue[Callable[[], object]]()
    texts: list[str] = []
    is_wanted = True
    profiler = Profiler(calls.put)
    assert profiler.start(1e9, lambda: is_wanted, texts.append)
    assert not profiler.start(1, lambda: True, texts.append)
    is_wanted = False
    calls.get(timeout=ANSWER_SECONDS)()
    (text,) = texts
    assert any(line.startswith("MainThread;") for line in text.splitlines())
    assert text.endswith("\n")


def test_a_profile_does_not_stop_the_broker(nsqd: NsqdProcess) -> None:
    with ThreadPoolExecutor() as pool:
        profile = pool.submit(nsqd.http, "GET", "/debug/pprof/profile?seconds=1")
        while not profile.done():
            assert nsqd.http("POST", "/pub?topic=profiled", b"x").status == 200
    answer = profile.result()
    assert answer.status == 200
    assert b"MainThread;" in answer.body
    assert b";twisted.internet." in answer.body


def test_a_profile_is_refused_until_the_other_one_is_done_or_not_wanted(nsqd: NsqdProcess) -> None:
    first = http.client.HTTPConnection(HOST, nsqd.http_port, timeout=ANSWER_SECONDS)
    first.request("GET", "/ping")  # who comes later is accepted later
    first.getresponse().read()
    first.request("GET", "/debug/pprof/profile?seconds=1000000")
    refused = nsqd.http("GET", "/debug/pprof/profile?seconds=1")
    assert refused == (500, b"Could not enable CPU profiling: cpu profiling already in use\n")
    first.close()
    wait_until(lambda: nsqd.http("GET", "/debug/pprof/profile?seconds=1").status == 200, "the first one ends")


def test_a_real_reactor_waits_for_its_listeners(nsqd: NsqdProcess) -> None:
    answer = nsqd.http("GET", "/debug/pprof/block")
    assert re.search(rf"^read .* on {nsqd.http_port}>$", answer.body.decode(), re.MULTILINE)
    assert b"TurnReactor, pending calls:\n" in nsqd.http("GET", "/debug/pprof/goroutine").body
    assert nsqd.http("GET", "/debug/pprof/cmdline").body.endswith(b"\0" + nsqd.command()[-1].encode())
