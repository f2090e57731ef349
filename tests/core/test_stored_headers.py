"""Headers and channels on their way into storage and out of it, over crashes, and backends that do not store them."""

from __future__ import annotations

from pathlib import Path

import pytest
from zope.interface import implementer_only

from nsqtw.core.log import Cache, Log
from nsqtw.core.segment import SEGMENT_BYTES
from nsqtw.errors import HeadersRefused
from nsqtw.interfaces import IBackend
from nsqtw.message_headers import encode_headers
from nsqtw.testing.contracts import headers, make_segment, make_segment_with_headers
from nsqtw.testing.memory import MemoryBackend
from tests.core.harness import BrokerHarness
from tests.tools.fsck.data_path import Stored

ONE, TWO = encode_headers({"a": "1"}), encode_headers({"b": "2"})


@implementer_only(IBackend)
class WithoutHeaders(MemoryBackend):
    """A third party's backend that does not know of headers."""


def refused(harness: BrokerHarness, of: list[bytes] | None, channel: str = "") -> list[Exception | None]:
    answers: list[Exception | None] = []
    harness.topic().put([b"x"], 0, answers.append, of, channel)
    harness.turn()
    return answers


def test_headers_are_delivered_after_a_crash(tmp_path: Path) -> None:
    """Those of a first delivery and of a redelivery, from log files."""
    broker = Stored(tmp_path)
    broker.channel("c")
    broker.topic().put([b"1", b"2", b"3"], 0, lambda error: None, [ONE, b"", TWO])
    broker.turn()
    broker.save()
    broker.close()
    broker = Stored(tmp_path)
    reader = broker.reader("c", ready=10)
    taken: list[bytes] = []
    reader.consumer.deliver_with_headers = lambda frames, encoded: taken.extend(encoded)
    broker.turn()
    assert taken == [ONE, b"", TWO]
    broker.close()
    assert broker.damage == []


def test_large_headers_are_stored_in_several_segments() -> None:
    """As large bodies are: a segment is read, cached and written as one."""
    harness = BrokerHarness()
    large = encode_headers({"filler": "x" * 16_000})
    count = 3 * SEGMENT_BYTES // len(large)
    harness.topic().put([b"x"] * count, 0, lambda error: None, [large] * count)
    segments = harness.topic().seal(1)
    assert max(segment.header_bytes for segment in segments) <= SEGMENT_BYTES
    assert [segment.count for segment in segments][:3] == [segments[0].count] * 3
    assert sum(segment.count for segment in segments) == count


@pytest.mark.parametrize(("of", "channel"), [([ONE], ""), (None, "c"), ([ONE], "c")])
def test_a_backend_without_headers_refuses_them(of: list[bytes] | None, channel: str) -> None:
    """The publisher is told, and nothing is stored. Other messages are taken."""
    harness = BrokerHarness()
    harness.broker.backend = WithoutHeaders()
    [error] = refused(harness, of, channel)
    assert isinstance(error, HeadersRefused)
    assert str(error) == "the storage backend does not store headers"
    assert refused(harness, None) == [None]
    assert harness.topic().message_count == 1


def test_a_log_that_moves_takes_its_headers_along() -> None:
    """To a backend that does not store them it does not move."""
    memory = MemoryBackend()
    log = Log(memory, memory.queue("t"), Cache())
    segments = [make_segment(0), make_segment_with_headers(1, 3), make_segment_with_headers(4, 2, channel="c")]
    assert memory.commit([(log.queue, segments)], False) == {}
    with pytest.raises(HeadersRefused):
        log.move(WithoutHeaders(), "t")
    log.move(MemoryBackend(), "t")
    assert headers(log.queue.read(0, 10_000)) == headers(segments)
    assert log.stores_headers


def test_the_cache_counts_headers() -> None:
    """Or large ones would fill the memory."""
    used = []
    for segment in (make_segment(1, 2), make_segment_with_headers(1, 2, header_bytes=1000)):
        cache, memory = Cache(), MemoryBackend()
        cache.add(Log(memory, memory.queue("t"), cache), [segment])
        used.append(cache.used)
    assert used[1] - used[0] > 2000
