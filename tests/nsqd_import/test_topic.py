"""Whatever an nsqd left, and whatever was there before: each channel gets each message it wants once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nsqd_import.data_path import DataPath
from tests.nsqd_import.nsqd_files import left, write_names, write_queue

CHANNELS = ("a", "b", "c")
QUEUES = ("", *CHANNELS)

LEFT = st.lists(
    st.one_of(
        st.just({"": 0}),
        st.dictionaries(st.sampled_from(CHANNELS), st.sampled_from([0, 0, 0, 1, 65535]), min_size=1),
    ),
    max_size=30,
)
BEFORE = st.lists(
    st.one_of(
        st.tuples(st.just("channel"), st.sampled_from(CHANNELS)),
        st.tuples(st.just("put"), st.sampled_from([0, 0, 50])),
        st.tuples(st.just("finish"), st.sampled_from(CHANNELS)),
        st.tuples(st.just("requeue"), st.sampled_from(CHANNELS)),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.just("empty"), st.just(0)),
        st.tuples(st.just("save"), st.just(0)),
    ),
    max_size=25,
)


class Model:
    """What each channel has still to finish, by body; `kept` is what the topic has not released."""

    def __init__(self) -> None:
        self.wanted: dict[str, Counter[bytes]] = {}
        self.kept: Counter[bytes] = Counter()
        self.paused = False

    def release(self) -> None:
        if self.wanted and not self.paused:
            for bodies in self.wanted.values():
                bodies += self.kept
            self.kept.clear()


def do(data_path: DataPath, model: Model, step: str, with_what, number: int) -> None:
    """One step of the life before the import."""
    topic = data_path.topic()
    if step == "channel":
        data_path.channel(with_what)
        model.wanted.setdefault(with_what, Counter())
    elif step == "put":
        body = b"old %d" % number
        data_path.put(body, delay_ms=with_what)
        data_path.turn()
        model.kept[body] += 1
    elif step in ("finish", "requeue") and with_what in topic.channels:
        reader = data_path.reader(with_what, ready=1)
        for message in reader.read()[:1]:
            if step == "finish":
                reader.finish(message.id)
                model.wanted[with_what] -= Counter([message.body])
            else:
                reader.requeue(message.id)
        reader.consumer.ready_count = 0
    elif step == "pause":
        model.paused = with_what
        if with_what:
            topic.pause()
        else:
            topic.unpause(data_path.now)
    elif step == "empty":
        topic.empty()
        model.kept.clear()
    elif step == "save":
        data_path.save()
    model.release()


def check_delivered(data_path: DataPath, model: Model, messages: list[dict[str, int]]) -> None:
    assert data_path.topic().depth == sum(model.kept.values())
    for channel, bodies in model.wanted.items():
        assert data_path.channel(channel).depth == sum(bodies.values())
    delivered = {channel: data_path.drain(channel) for channel in model.wanted}
    ids = {}
    for channel, found in delivered.items():
        assert Counter(message.body for message in found) == model.wanted[channel]
        for message in found:
            assert ids.setdefault(message.body, message.id) == message.id
            number = message.body.partition(b"message ")[2]
            if number:
                attempts = messages[int(number)].get(channel, 0)
                assert message.attempts == attempts + 1 & 0xFFFF
                assert message.timestamp_ns == left(int(number)).timestamp_ns
        assert (data_path.channel(channel).depth, data_path.channel(channel).in_flight_count) == (0, 0)
    assert len(set(ids.values())) == len(ids)


@settings(max_examples=60)
@given(BEFORE, LEFT, st.booleans(), st.randoms(use_true_random=False))
def test_every_channel_gets_what_it_wants(before, messages, paused: bool, some) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        model = Model()
        if before:
            data_path = DataPath(directory)
            data_path.topic()
            for number, (step, with_what) in enumerate(before):
                do(data_path, model, step, with_what, number)
            data_path.save()
            data_path.close()
        for wanted in messages:
            for channel in wanted:
                if channel:
                    model.wanted.setdefault(channel, Counter())
        write_names(directory, {"t": list(model.wanted)}, *["t"] * paused)
        in_queues: dict[str, list] = {queue: [] for queue in QUEUES}
        for number, wanted in enumerate(messages):
            for queue, attempts in wanted.items():
                message = left(number, attempts=attempts)
                in_queues[queue].append(message)
                (model.wanted[queue] if queue else model.kept)[message.body] += 1
        for queue, of_queue in in_queues.items():
            some.shuffle(of_queue)
            write_queue(directory, f"t:{queue}" if queue else "t", *of_queue, max_bytes_per_file=200)
            if queue:
                model.wanted.setdefault(queue, Counter())
        model.paused = paused
        model.release()
        data_path = DataPath(directory)
        data_path.wait(1)
        try:
            check_delivered(data_path, model, messages)
            topic = data_path.topic()
            topic.unpause(data_path.now)
            data_path.wait(1)
            for channel in model.wanted:
                assert data_path.bodies(channel) == model.kept
            data_path.put(b"new")
            for channel in model.wanted:
                assert data_path.bodies(channel) == Counter([b"new"])
        finally:
            data_path.close()
