"""`nsqd` itself, started where an nsqd 1.x was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nsqd_import.data_path import names
from tests.nsqd_import.nsqd_files import left, write_names, write_queue
from tests.process import NsqdProcess


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """Not started yet."""
    process = NsqdProcess(tmp_path)
    yield process
    process.close()
    process.assert_no_traceback()


def test_a_consumer_gets_what_nsqd_had_for_it(nsqd: NsqdProcess) -> None:
    messages = [left(number) for number in range(100)]
    write_names(nsqd.data_path, {"t": ["c"]})
    write_queue(nsqd.data_path, "t", *messages[60:])
    write_queue(nsqd.data_path, "t:c", *messages[:60], max_bytes_per_file=1000)
    nsqd.start()
    found = nsqd.drain("t", "c", 100)
    assert sorted((m.timestamp_ns, m.body) for m in found) == [(m.timestamp_ns, m.body) for m in messages]
    assert not any("diskqueue" in name or name.startswith("import") for name in names(nsqd.data_path))
    assert "TOPIC(t): imported 100 messages, 40 of them not handed to any channel yet" in nsqd.said()
    nsqd.restart()
    assert nsqd.said().count("imported") == 1
