"""
The load generator itself: what it cuts out of received bytes, and that a wrong broker gets no figure.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import load, plan, report, wire
from tests.bench.cases import CASES, Bar, Figure, Size
from tests.bench.errors import BrokerFailed, WrongCount
from tests.bench.load import Run
from tests.bench.plan import Consuming, Plan
from tests.bench.publisher import Publisher
from tests.bench.server import default_executable, running
from tests.bench.tools import tool_cases
from tests.bench.traffic import Traffic
from tests.bench.watch import Sample

BODY = wire.body(200)


def message_id(number: int) -> bytes:
    return b"%016x" % number


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(data), kind) + data


def message(number: int, body: bytes = BODY) -> bytes:
    return frame(wire.MESSAGE, struct.pack(">qH", number, 1) + message_id(number) + body)


def messages(start: int, stop: int) -> bytes:
    return b"".join(message(number) for number in range(start, stop))


HEARTBEAT = frame(wire.RESPONSE, b"_heartbeat_")
OK = frame(wire.RESPONSE, b"OK")
CLOSE_WAIT = frame(wire.RESPONSE, b"CLOSE_WAIT")


def cut_in_pieces(data: bytes, piece_bytes: int) -> tuple[list[bytes], int, list[bytes]]:
    """
    Ids, heartbeats and responses, as a consumer that receives so many bytes at a time finds them.
    """
    buffer, end = bytearray(1 << 16), 0
    cutter = wire.MessageCutter(len(BODY), len(buffer))
    ids: list[bytes] = []
    responses: list[bytes] = []
    heartbeats = 0
    for start in range(0, len(data), piece_bytes):
        piece = data[start : start + piece_bytes]
        buffer[end : end + len(piece)] = piece
        end += len(piece)
        cut = cutter.cut(buffer, end)
        assert cut.fins.count(b"FIN ") == cut.messages
        ids += wire.finished_ids(cut.fins)
        heartbeats += cut.heartbeats
        responses += cut.responses
        end -= cut.consumed
        buffer[:end] = buffer[cut.consumed : cut.consumed + end]
    return ids, heartbeats, responses


@pytest.mark.parametrize("piece_bytes", [1, 7, 233, 234, 235, 1000, 1 << 16])
@pytest.mark.parametrize(
    ("data", "count", "heartbeats", "responses"),
    [
        (messages(0, 100), 100, 0, []),
        (HEARTBEAT + messages(0, 20), 20, 1, []),
        (messages(0, 9) + HEARTBEAT + messages(9, 20) + OK + messages(20, 30), 30, 1, [b"OK"]),
        (messages(0, 20) + HEARTBEAT, 20, 1, []),
        (messages(0, 5) + CLOSE_WAIT, 5, 0, [b"CLOSE_WAIT"]),
        (OK + HEARTBEAT, 0, 1, [b"OK"]),
        (messages(0, 12) + message(12)[:-1], 12, 0, []),
        (messages(0, 3) + message(3)[:5], 3, 0, []),
    ],
)
def test_every_message_is_found_however_bytes_arrive(
    data: bytes, count: int, heartbeats: int, responses: list[bytes], piece_bytes: int
) -> None:
    expected = ([message_id(number) for number in range(count)], heartbeats, responses)
    assert expected == cut_in_pieces(data, piece_bytes)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (messages(0, 5) + frame(wire.ERROR, b"E_FIN_FAILED FIN x failed"), "E_FIN_FAILED FIN x failed"),
        (messages(0, 5) + message(5, BODY[:-1]) + messages(6, 9), "a message of 225 bytes, not 226"),
        (messages(0, 5) + message(5, BODY + bytes(256)) + messages(6, 9), "a message of 482 bytes, not 226"),
        (messages(0, 5) + b"\0\0\0\x09\0\0\0\x07hello" + messages(6, 9), "not a frame: size 9, type 7"),
        (messages(0, 5)[1:], "not a frame"),
    ],
)
def test_a_consumer_refuses_what_it_did_not_publish(data: bytes, complaint: str) -> None:
    with pytest.raises(BrokerFailed, match=complaint):
        cut_in_pieces(data, 1 << 16)


@pytest.mark.parametrize("piece_bytes", [1, 3, 10, 1000])
def test_ok_frames_are_counted_between_heartbeats(piece_bytes: int) -> None:
    data = OK * 3 + HEARTBEAT + OK * 2 + HEARTBEAT
    replies = wire.FrameReplies()
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    assert sum(replies.feed(piece) for piece in pieces) == 5


def test_an_error_instead_of_ok_is_a_failure() -> None:
    with pytest.raises(BrokerFailed, match="E_PUB_FAILED"):
        wire.FrameReplies().feed(OK + frame(wire.ERROR, b"E_PUB_FAILED PUB failed"))


@pytest.mark.parametrize("piece_bytes", [1, 50, 1000])
def test_http_answers_are_counted(piece_bytes: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nDate: today\r\ncontent-length: 2\r\n\r\nOK"
    data = answer * 3
    replies = wire.HttpReplies()
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    assert sum(replies.feed(piece) for piece in pieces) == 3
    assert replies.feed(answer) == 1


def test_an_http_error_is_a_failure() -> None:
    with pytest.raises(BrokerFailed, match="503 Service Unavailable"):
        wire.HttpReplies().feed(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nNO")


@contextmanager
def publisher_fed_by_hand(window: int) -> Iterator[tuple[Callable[[bytes], int], Traffic]]:
    """
    A function that has a publisher read some bytes and says how many messages are acknowledged then.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        publishing = replace(plan.pub(listener.getsockname()[1], "t", 1), greeting=b"", window=window)
        traffic = Traffic(Plan(os.getpid(), publishing))
        publisher = Publisher(publishing, traffic)
        broker, _ = listener.accept()
        with broker, publisher.socket:

            def feed(data: bytes) -> int:
                broker.sendall(data)
                publisher.on_readable()
                return traffic.acknowledged

            traffic.start()
            publisher.fill()
            yield feed, traffic


def test_a_publisher_counts_the_usual_answer_and_any_other() -> None:
    with publisher_fed_by_hand(window=2) as (feed, traffic):
        pieces = [OK, OK, HEARTBEAT, OK, OK[:4], OK[4:], OK, HEARTBEAT + OK, OK * 2, OK * 2, OK]
        assert [feed(piece) for piece in pieces] == [1, 2, 2, 3, 3, 4, 5, 6, 8, 10, 11]
        assert traffic.sent == 13
        with pytest.raises(BrokerFailed, match="E_PUB_FAILED"):
            feed(frame(wire.ERROR, b"E_PUB_FAILED PUB failed"))


def test_the_usual_answer_is_none_within_a_frame() -> None:
    with publisher_fed_by_hand(window=1) as (feed, _):
        assert [feed(OK), feed(OK)] == [1, 2]
        assert feed(frame(wire.RESPONSE, OK)[:8]) == 2
        with pytest.raises(BrokerFailed, match="instead of OK"):
            feed(OK)


def test_a_publisher_whose_connection_is_closed_gives_no_figure() -> None:
    with stub({}) as broker:
        publisher = Publisher(plan.pub(broker.port, "t", 1), Traffic(Plan(os.getpid())))
        publisher.socket.shutdown(socket.SHUT_WR)
        with publisher.socket, pytest.raises(BrokerFailed, match="closed a publishing connection"):
            publisher.on_readable()


def test_payloads_have_the_layout_of_the_protocol() -> None:
    assert wire.pub("t", b"hi") == b"PUB t\n\0\0\0\x02hi"
    assert wire.dpub("t", 5, b"hi") == b"DPUB t 5\n\0\0\0\x02hi"
    content = b"\0\0\0\x02" + b"\0\0\0\x02hi" + b"\0\0\0\x01x"
    assert b"MPUB t\n" + struct.pack(">i", len(content)) + content == wire.mpub("t", [b"hi", b"x"])


class StubBroker:
    """
    Answers one connection from a script: after the greeting, each command it reads picks the bytes to send.
    """

    def __init__(self, script: dict[bytes, bytes]) -> None:
        self._script = {b"IDENTIFY": OK, b"SUB": OK, b"CLS": CLOSE_WAIT, **script}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as reader, suppress(ConnectionError):
            assert reader.read(4) == wire.MAGIC
            while line := reader.readline():
                command = line.split()[0]
                if command in (b"IDENTIFY", b"PUB", b"MPUB"):
                    reader.read(struct.unpack(">i", reader.read(4))[0])
                self.heard.append(line)
                connection.sendall(self._script.get(command, b""))

    def join(self) -> None:
        self._listener.close()
        self._thread.join()


@contextmanager
def stub(script: dict[bytes, bytes]) -> Iterator[StubBroker]:
    broker = StubBroker(script)
    try:
        yield broker
    finally:
        broker.join()


def consume(script: dict[bytes, bytes], prefilled: int) -> tuple[plan.Tally, list[bytes]]:
    with stub(script) as broker:
        consuming = (Consuming(broker.port, "t", "ch"),)
        run = Run(Plan(os.getpid(), None, consuming, prefilled))
        try:
            tally = run.tally()
        finally:
            run.close()
    return tally, broker.heard


def test_a_backlog_is_consumed_and_finished() -> None:
    tally, heard = consume({b"RDY": messages(0, 3) + HEARTBEAT + messages(3, 5)}, prefilled=5)
    assert (tally.received, tally.received_by, tally.delivered) == ({"ch": 5}, [5], 5)
    fins = [b"FIN %s\n" % message_id(number) for number in range(5)]
    assert fins == [line for line in heard if line.startswith(b"FIN")]
    assert b"NOP\n" in heard and heard[-1] == b"CLS\n"


def test_a_lost_message_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "ANSWER_SECONDS", 0.05)
    with pytest.raises(WrongCount, match=r"nothing passes any more: .*{'ch': 4} received where 5"):
        consume({b"RDY": messages(0, 4)}, prefilled=5)


def test_a_repeated_message_gives_no_figure() -> None:
    with pytest.raises(WrongCount, match="delivered 1 messages twice"):
        consume({b"RDY": messages(0, 4) + message(2)}, prefilled=5)


def test_an_invented_message_gives_no_figure() -> None:
    with pytest.raises(WrongCount, match="delivered 6 messages, not 5"):
        consume({b"RDY": messages(0, 5), b"CLS": message(5) + CLOSE_WAIT}, prefilled=5)


def test_a_poisoned_message_is_requeued_and_not_counted() -> None:
    with stub({b"RDY": messages(0, 3), b"REQ": message(3)}) as broker:
        consuming = (Consuming(broker.port, "t", "ch", poison_id=message_id(1)),)
        run = Run(Plan(os.getpid(), None, consuming, 3))
        tally = run.tally()
        run.close()
    assert (tally.received_by, tally.requeued_by) == ([3], [1])
    assert b"REQ %s 0\n" % message_id(1) in broker.heard
    assert b"FIN %s\n" % message_id(1) not in broker.heard


def test_a_broker_that_sends_only_the_poisoned_message_gives_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "ANSWER_SECONDS", 0.05)
    with stub({b"RDY": message(1), b"REQ": message(1)}) as broker:
        consuming = (Consuming(broker.port, "t", "ch", ready_count=1, poison_id=message_id(1)),)
        run = Run(Plan(os.getpid(), None, consuming, 3))
        with pytest.raises(WrongCount, match="nothing passes any more"):
            run.tally()
        run.close()


@pytest.mark.parametrize(
    ("make", "command", "reply"),
    [
        (lambda port: plan.pub(port, "t", 1), b"PUB", OK),
        (lambda port: plan.pub(port, "t", 1, 10), b"PUB", OK),
        (lambda port: plan.mpub(port, "t", 1, 20), b"MPUB", OK),
    ],
)
def test_a_publisher_stops_at_its_limit(make: Callable[[int], plan.Publishing], command: bytes, reply: bytes) -> None:
    with stub({command: reply}) as broker:
        run = Run(Plan(os.getpid(), replace(make(broker.port), limit=60)))
        tally = run.tally()
        run.close()
    assert tally.published == 60
    publishing = make(broker.port)
    assert 60 // publishing.messages * publishing.replies == broker.heard.count(command + b" t\n")


def test_a_refused_publish_gives_no_figure() -> None:
    with stub({b"PUB": frame(wire.ERROR, b"E_PUB_FAILED PUB failed full")}) as broker:
        run = Run(Plan(os.getpid(), replace(plan.pub(broker.port, "t", 1), limit=10)))
        with pytest.raises(BrokerFailed, match="E_PUB_FAILED PUB failed full"):
            run.tally()
        run.close()


def test_a_program_that_is_no_broker_is_told_in_one_line(tmp_path: Path) -> None:
    program = tmp_path / "nsqd"
    program.write_text("#!/bin/sh\necho 'no such flag' >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(BrokerFailed, match="exited with 2: no such flag"), running(program, []):
        raise AssertionError("it must not get here")
    with pytest.raises(BrokerFailed, match=r"cannot start .*absent"), running(tmp_path / "absent", []):
        raise AssertionError("it must not get here")


def test_the_table_shows_medians_and_the_ratios() -> None:
    ours = report.Summary.of([Figure(1000, seconds, 0.002, 0.001) for seconds in (1.0, 0.5, 2.0)])
    memory = report.Summary.of([Figure(1000, 1.0, 0.008, 0.001)])
    defaults = report.Summary.of([Figure(1000, 2.0, 0.008, 0.001)])
    assert (ours.rate, ours.cost_us, defaults.rate) == (1000.0, 2.0, 500.0)
    case = replace(CASES[0], bar=Bar(1.2, 2.0))
    rows = report.lines(case, {"ours": ours, "memory": memory, "defaults": defaults})
    assert len(rows) == 5
    assert rows[0].startswith(case.title)
    assert " ".join(rows[3].split()) == "ratio 1.00 0.25 to memory; bar 1.2: below"
    assert " ".join(rows[4].split()) == "ratio 2.00 0.25 to defaults; bar 2.0"


def test_a_shorter_latency_is_a_higher_ratio_and_both_have_to_reach_the_bar() -> None:
    ours = report.Summary.of([Figure(1000, 1.0, 0.002, 0.0, p50_us=50.0, p99_us=400.0)])
    peer = report.Summary.of([Figure(1000, 1.0, 0.002, 0.0, p50_us=100.0, p99_us=100.0)])
    case = replace(CASES[0], bar=Bar(1.0, 0.2))
    row = report.lines(case, {"ours": ours, "memory": peer})[2]
    assert row.endswith("to memory, p50 2.00, p99 0.25; bar 1.0: below")
    assert report.Ratio.of(ours, peer).reaches(case, "defaults")


def test_nsq_s_own_programs_drive_a_case(tmp_path: Path) -> None:
    """They are no part of this project: here a program of the same name says what they say."""
    for name in ("bench_writer", "bench_reader"):
        program = tmp_path / name
        program.write_text(
            "#!/bin/sh\necho '[x] 2026/01/01 00:00:00 duration: 2.1s - 53.406mb/s - 280000.000ops/s - 3.571us/op' >&2\n"
        )
        program.chmod(0o755)
    with running(default_executable(), []) as broker:
        rates = [case.measure(broker, case.name, Size(0.5, 0)).rate for case in tool_cases(tmp_path)]
        assert rates == [280_000] * 4
        program.write_text("#!/bin/sh\necho 'connection refused' >&2\nexit 2\n")
        with pytest.raises(BrokerFailed, match="bench_reader exited with 2: connection refused"):
            tool_cases(tmp_path)[1].measure(broker, "t", Size(0.5, 0))


def test_a_sample_is_shown_in_megabytes() -> None:
    assert str(Sample(12.0, 34_500_000, 6_000_000)) == "    12 s  resident     34.5 MB  disk      6.0 MB"
