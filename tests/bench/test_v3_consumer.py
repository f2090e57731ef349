"""The V3 consumer of the load generator finds every message, and answers each once, however frames come."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.bench import v3_wire, wire
from tests.bench.errors import BrokerFailed
from tests.bench.plan import Consuming, Plan
from tests.bench.traffic import Traffic
from tests.bench.v3_consumer import V3Consumer

BODY = wire.body(200)


def messages(first: int, count: int) -> bytes:
    head = (30 + len(BODY)).to_bytes(4, "big") + b"\0\0\0\2" + bytes(8) + b"\0\1"
    return b"".join([head + b"%016x" % number + BODY for number in range(first, first + count)])


def deliver(first: int, count: int) -> bytes:
    return v3_wire.frame(v3_wire.DELIVER, v3_wire.SUBSCRIPTION, messages(first, count))


class Pair:
    """A consumer and the broker's end of its connection."""

    def __init__(self, *, single_fins: bool) -> None:
        self.single_fins = single_fins
        with socket.create_server(("127.0.0.1", 0)) as listener:
            accepting = threading.Thread(target=self._greet, args=(listener,))
            accepting.start()
            consuming = Consuming(listener.getsockname()[1], "t", "ch", protocol="V3", single_fins=single_fins)
            self.consumer = V3Consumer(consuming, Traffic(Plan(0, None, (consuming,), 1)), keep_ids=True)
            accepting.join()

    def _greet(self, listener: socket.socket) -> None:
        self.broker, _ = listener.accept()
        self.broker.sendall(v3_wire.frame(v3_wire.WELCOME, 0) + v3_wire.frame(v3_wire.SUBSCRIBED, 1))

    def finished(self) -> list[list[int]]:
        """The messages of each FIN that the consumer has sent."""
        self.consumer.socket.close()
        found: list[list[int]] = []
        with self.broker, self.broker.makefile("rb") as reader:
            assert reader.read(4) == v3_wire.MAGIC
            while head := reader.read(v3_wire.HEAD_BYTES):
                size, kind = struct.unpack(">IB", head[:5])
                payload = reader.read(4 + size - v3_wire.HEAD_BYTES)
                if kind == v3_wire.FIN:
                    ranges = struct.iter_unpack(">QI", payload)
                    found.append([first + number for first, count in ranges for number in range(count)])
        return found


@pytest.fixture(params=[False, True], ids=["together", "single"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(single_fins=request.param)
    yield pair
    pair.consumer.socket.close()
    pair.broker.close()


@pytest.mark.parametrize("counts", [[1], [1] * 72, [1] * 9 + [129] + [1] * 3, [3, 1, 1, 2, 1], [300, 1, 1]], ids=str)
@pytest.mark.parametrize("piece_bytes", [240, 1000, 1 << 17])
def test_every_message_is_found_once_however_frames_come(pair: Pair, counts: list[int], piece_bytes: int) -> None:
    """A DELIVER of 129 messages of this size has the lowest byte of the size of one with a single message."""
    data = b"".join([deliver(sum(counts[:index]), count) for index, count in enumerate(counts)])
    for start in range(0, len(data), piece_bytes):
        pair.broker.sendall(data[start : start + piece_bytes])
        pair.consumer.on_readable()
    while pair.consumer.received < sum(counts):
        pair.consumer.on_readable()
    numbers = range(sum(counts))
    assert pair.consumer.ids() == [b"%016x" % number for number in numbers]
    fins = pair.finished()
    assert [number for fin in fins for number in fin] == [*numbers]
    assert not pair.single_fins or len(fins) == len(numbers)


def test_messages_of_another_size_give_no_figure(pair: Pair) -> None:
    pair.broker.sendall(deliver(0, 2) + v3_wire.frame(v3_wire.DELIVER, 1, messages(2, 1) + b"x"))
    with pytest.raises(BrokerFailed, match="a DELIVER of 243 bytes"):
        pair.consumer.on_readable()


@pytest.mark.parametrize(("first", "count"), [(5, 3), (0xFFFE, 5), (2**53 - 2, 0x10004)])
def test_single_fins_are_a_fin_of_each(first: int, count: int) -> None:
    expected = b"".join([v3_wire.fin([(number, 1)]) for number in range(first, first + count)])
    assert v3_wire.single_fins(first, count) == expected
