"""What brokers with policies leave when they die: fsck understands it, and finds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.message_headers import encode_headers
from nsqtw.tools.fsck.command import CLEAN, run
from tests.tools.fsck.data_path import Stored, findings

KEY, HIGH, LOW, ID = (
    encode_headers({name: value})
    for name, value in (("key", "k"), ("priority", "high"), ("priority", "low"), ("id", "x"))
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Stored]:
    broker = Stored(tmp_path)
    broker.channel("c")
    broker.channel("other")
    broker.save()
    yield broker
    broker.close()


def publish(broker: Stored, *headers: bytes) -> None:
    answers = broker.put(*[b"%d" % number for number in range(len(headers))], headers=headers)
    broker.turn()
    assert answers == [None]


def test_policies_that_were_set_at_run_time_are_named(broker: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    """An nsqtw without policies does not open such a data path."""
    broker.channel("c").policies.set({"max_rate": 5.0})
    broker.save()
    assert findings(broker.directory) == []
    assert run(str(broker.directory), False) == CLEAN
    line = f"{broker.directory}/positions.db has policies that were set at run time: "
    assert f"{line}channel t/c\n" in capsys.readouterr().out
    broker.topic().policies.set({"dedupe_window": 3600.0})
    broker.save()
    run(str(broker.directory), False)
    assert f"{line}topic t, channel t/c\n" in capsys.readouterr().out
    broker.channel("c").policies.set({})
    broker.topic().policies.set({})
    broker.save()
    run(str(broker.directory), False)
    assert "policies" not in capsys.readouterr().out


def test_messages_on_their_way_to_the_dead_letter_topic(broker: Stored) -> None:
    """The pending row of each is there at every moment at which the broker may die."""
    broker.channel("c").policies.set({"max_attempts": 1})
    publish(broker, KEY, HIGH, LOW)
    reader = broker.reader(ready=3)
    for message in reader.read():
        reader.requeue(message.id)
    for _ in range(6):
        broker.wait(0.01)
        broker.save()
        assert findings(broker.directory) == []
    assert broker.channel("c").dead_letter_count == 3
    assert broker.topic("t.dead").channels["c"].depth == 3


def test_messages_that_wait_for_their_key(broker: Stored) -> None:
    broker.channel("c").policies.set({"ordered_by": "header:key"})
    publish(broker, *[KEY] * 5, HIGH)
    assert len(broker.reader(ready=10).read()) == 2
    broker.save()
    assert broker.channel("c").ordered.set_aside_count == 4
    assert findings(broker.directory) == []


def test_places_of_priorities(broker: Stored) -> None:
    broker.channel("c").policies.set({"priority": True})
    publish(broker, *[LOW] * 5, *[HIGH] * 5)
    reader = broker.reader(ready=4)
    messages = reader.read()
    assert [message.body for message in messages] == [b"5", b"6", b"7", b"8"]
    reader.finish(*[message.id for message in messages[:2]])
    broker.save()
    assert findings(broker.directory) == []


def test_publishers_ids(broker: Stored) -> None:
    broker.topic().policies.set({"dedupe_window": 3600.0})
    publish(broker, ID)
    publish(broker, ID)
    assert broker.topic().deduplicated_count == 1
    broker.save()
    assert findings(broker.directory) == []


def test_messages_for_one_channel(broker: Stored) -> None:
    """The other channel passes them: they are not missing there."""
    broker.topic().put([b"one"], 0, lambda error: None, None, "c")
    broker.turn()
    publish(broker, KEY)
    broker.save()
    assert findings(broker.directory) == []
    assert [len(broker.reader(channel, ready=9).read()) for channel in ("c", "other")] == [2, 1]
    broker.save()
    assert findings(broker.directory) == []
