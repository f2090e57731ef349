"""Dead letters: a message that failed too often is in the dead-letter topic or in its channel, never in both."""

from __future__ import annotations

from math import inf

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.drain import Unfinished, unfinished
from nsqtw.core.peek import peek_channel
from nsqtw.core.policy import dead_letters
from nsqtw.core.policy.dead_letters import REPORT_SECONDS
from nsqtw.errors import BackendError, InvalidPolicy
from nsqtw.options.channels import ChannelRule
from tests.core.harness import WALL_NS, BrokerHarness, Reader
from tests.core.policy.harness import FailingCommits, bodies, fail, put, retry, settle, stored

TIMEOUT = 61.0
HELD = "CHANNEL(c): dead letters of topic t cannot go to topic t.dead, {} are held and will be tried again -"


class Core(BrokerHarness):
    """A topic `t` whose channel `c` has a policy, which crashes do not change."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.given: dict[str, object] = {}

    def follow(self, **given: object) -> Channel:
        self.given = given
        channel = self.channel()
        channel.policies.set(given)
        return channel

    def start_again(self) -> None:
        self.crash()
        if "t" in self.broker.topics:
            self.channel().policies.set(self.given)
        settle(self)


@pytest.fixture
def core() -> Core:
    core = Core()
    core.follow(max_attempts=2)
    core.save()
    return core


def dead(core: BrokerHarness, topic: str = "t.dead") -> list[bytes]:
    """What the dead-letter topic has, as often as it has it."""
    return bodies(core, topic) if topic in core.broker.topics else []


def left(core: BrokerHarness) -> list[bytes]:
    """What the channel still delivers."""
    found: list[bytes] = []
    reader = core.reader()
    settle(core)
    found = reader.bodies()
    reader.leave()
    return found


def test_a_message_is_delivered_max_attempts_times(core: Core) -> None:
    put(core, b"m", color="red")
    reader = core.reader()
    assert fail(reader) == [b"m"]
    (message,) = reader.read()
    assert message.attempts == 2
    assert reader.requeue(message.id, delay=30.0) is None
    settle(core)
    assert stored(core, "t.dead") == {
        b"m": {
            "color": "red",
            "nsq-dead-reason": "requeued",
            "nsq-dead-topic": "t",
            "nsq-dead-channel": "c",
            "nsq-dead-attempts": "2",
            "nsq-dead-timestamp": str(WALL_NS + 1000 * 10**9),
            "nsq-dead-id": message.id.decode(),
        }
    }
    channel = core.channel()
    assert (channel.depth, channel.deferred_count, channel.in_flight_count, channel.dead_letter_count) == (0, 0, 0, 1)
    assert channel.cursor is not None and not channel.cursor.has_rows
    assert reader.finish(message.id) == [(message.id, "ID not in flight")]


def test_the_dead_letter_topic_has_a_channel_of_the_same_name_that_gets_them(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    settle(core)
    assert core.broker.topics["t.dead"].channels["c"].depth == 1
    assert core.reader("c", "t.dead").bodies() == [b"1"]


def test_a_timeout_and_a_lost_connection_are_failures() -> None:
    core = Core(requeue_on_disconnect=True)
    core.follow(max_attempts=1, dead_letter_topic="graveyard")
    put(core, b"slow")
    reader = core.reader()
    assert reader.bodies() == [b"slow"]
    core.wait(TIMEOUT)
    settle(core)
    put(core, b"gone")
    assert reader.bodies() == [b"gone"]
    reader.leave()
    settle(core)
    reasons = {body: headers["nsq-dead-reason"] for body, headers in stored(core, "graveyard").items()}
    assert reasons == {b"slow": "timed out", b"gone": "disconnected"}


def test_a_message_that_failed_before_the_policy_leaves_at_its_next_delivery(core: Core) -> None:
    core.follow()
    put(core, b"1")
    reader = core.reader()
    for _ in range(3):
        assert fail(reader) == [b"1"]
    core.follow(max_attempts=2)
    reader.channel.wake()
    assert reader.bodies() == []
    settle(core)
    headers = stored(core, "t.dead")[b"1"]
    assert (headers["nsq-dead-reason"], headers["nsq-dead-attempts"]) == ("too many attempts", "3")


def test_without_the_policy_held_messages_are_ready_again(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    with FailingCommits(core, "t.dead"):
        fail(reader)
        settle(core)
        assert core.channel().held
        core.follow()
        assert reader.bodies() == [b"1"]
    assert not core.channel().held


# -- failures and crashes


def test_a_failed_commit_is_repeated_with_a_delay(core: Core) -> None:
    put(core, b"1", b"2")
    reader = core.reader()
    fail(reader)
    with FailingCommits(core, "t.dead"):
        fail(reader)
        settle(core)
        core.wait(1)
        settle(core)
        assert reader.bodies() == []
    assert dead(core) == []
    channel = core.channel()
    assert (channel.depth, channel.in_flight_count, len(channel.held)) == (2, 0, 2)
    retry(core)
    assert dead(core) == [b"1", b"2"]
    assert channel.depth == 0
    lines = [text for level, text in core.lines if text.startswith("CHANNEL(c): dead")]
    assert lines == [f"{HELD.format(2)} no space"]


def test_a_failed_save_is_repeated_too(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    core.turn()
    core.save(BackendError("no space"))
    settle(core)
    assert dead(core) == []
    retry(core)
    assert dead(core) == [b"1"]


def steps_of(core: Core, steps: int) -> None:
    """A message fails for the last time, and so many steps are taken: turns, and the saves that are waited for."""
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    for _ in range(steps):
        if core.broker.checkpointer.are_waited_for:
            core.save()
        else:
            core.broker.tick(core.now)
            core.broker.commit(core.now)


@pytest.mark.parametrize("saves_before", [False, True])
@pytest.mark.parametrize("steps", range(8))
def test_a_crash_after_any_step_leaves_it_in_one_of_the_two(core: Core, steps: int, saves_before: bool) -> None:
    steps_of(core, steps)
    if saves_before and steps > 5:
        core.save()
    was_stored = dead(core)
    core.start_again()
    assert {*was_stored} <= {*dead(core)}
    found = left(core)
    settle(core)
    assert found + dead(core) == [b"1"]
    core.start_again()
    core.start_again()
    assert dead(core) == ([] if found else [b"1"])
    assert left(core) == found


def test_a_crash_between_the_parts_of_a_checkpoint_leaves_it_in_one_of_the_two(core: Core) -> None:
    for number in range(150):
        core.channel(topic=f"before{number}")
    core.save()
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    settle(core)
    assert dead(core) == [b"1"]
    # The order of the next checkpoint: the dead-letter topic, many others, and the topic.
    touched = core.broker.touched
    topics = core.broker.topics
    touched.clear()
    others = [topic for name, topic in topics.items() if name.startswith("before")]
    touched.update(dict.fromkeys([topics["t.dead"], *others, topics["t"]]))
    part = core.broker.checkpointer.begin(core.now)
    assert core.broker.checkpointer.are_in_parts
    assert {"t", "t.dead"} <= {topic.name for topic in part.checkpoint.topics}
    core.positions.save(part.checkpoint)
    core.broker.checkpointer.end(part, None)
    core.start_again()
    assert (dead(core), left(core)) == ([b"1"], [])


def test_after_a_failed_checkpoint_both_topics_are_saved_together(core: Core) -> None:
    steps_of(core, 6)
    assert dead(core) == [b"1"]
    core.save(BackendError("no space"))
    topic, dead_topic = core.topic(), core.topic("t.dead")
    assert topic.saved_with == {dead_topic}
    assert dead_topic.saved_with == {topic}
    core.save()
    assert not topic.saved_with and not dead_topic.saved_with


def test_the_class_of_the_dead_letter_topic_is_not_weaker() -> None:
    core = Core(durability="memory")
    core.follow(max_attempts=1)
    reader = core.reader()
    put(core, b"1")
    fail(reader)
    settle(core)
    assert core.topic("t.dead").durability == "os"
    core.topic().set_durability("fsync")
    put(core, b"2")
    fail(reader)
    settle(core)
    assert core.topic("t.dead").durability == "fsync"
    assert dead(core) == [b"1", b"2"]


def test_a_batch_that_is_being_committed_survives_a_crash_in_one_of_the_two() -> None:
    core = Core(durability="fsync")
    core.follow(max_attempts=1)
    put(core, b"1")
    fail(core.reader())
    core.lands_at_once = False
    settle(core)
    assert core.batch is not None
    core.batch.commit(core.log)
    core.batch = None
    core.lands_at_once = True
    core.start_again()
    assert (dead(core), left(core)) == ([b"1"], [])


def test_many_leave_in_batches_of_bounded_size(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MAX_BATCH", 3)
    core.follow(max_attempts=1)
    many = [b"%d" % number for number in range(8)]
    put(core, *many)
    fail(core.reader())
    while not dead(core):
        settle(core, 1)
    assert dead(core) == many[:3]
    settle(core, 20)
    assert dead(core) == many


# -- what cannot be moved


def test_the_limit_of_topics_keeps_them_in_the_channel() -> None:
    core = Core(max_topics=1)
    core.follow(max_attempts=1)
    put(core, b"1")
    fail(core.reader())
    settle(core)
    retry(core)
    assert core.channel().held
    lines = [text for level, text in core.lines if level == "error"]
    assert lines == [f"{HELD.format(1)} topics exceed limit of 1"]
    core.wait(REPORT_SECONDS)
    retry(core)
    assert [text for level, text in core.lines if level == "error"] == lines * 2
    core.options.max_topics = 2
    retry(core)
    assert dead(core) == [b"1"]


def test_a_drain_leaves_them_in_the_channel(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    core.broker.begin_drain()
    fail(reader)
    settle(core)
    core.save()
    assert not [text for level, text in core.lines if level == "error"]
    assert unfinished(core.broker.topics.values(), inf, core.now) == Unfinished(staying=1)
    assert dead(core) == []
    core.start_again()
    assert (dead(core), left(core)) == ([b"1"], [])


@pytest.mark.parametrize("bound", [{"max_depth": 2}, {"max_bytes": 400}])
def test_a_bound_of_the_dead_letter_channel_is_waited_for_in_parts(bound: dict[str, object]) -> None:
    core = Core()
    channel = core.follow(max_attempts=1)
    letters = core.channel("c", "t.dead")
    letters.policies.set(bound)
    many = [b"%d" % number for number in range(7)]
    put(core, *many)
    fail(core.reader())
    settle(core, 60)
    found: list[bytes] = []
    while channel.depth:
        assert 1 <= letters.depth <= 2
        assert (letters.depth + channel.depth + len(found), channel.depth) == (7, len(channel.held))
        assert len(peek_channel(channel, "ready", 10, core.now).messages) == channel.depth
        reader = core.reader("c", "t.dead")
        got = reader.read()
        reader.finish(*[message.id for message in got])
        reader.leave()
        found += [message.body for message in got]
        retry(core)
        settle(core, 60)
    assert found + core.reader("c", "t.dead").bodies() == many
    assert {text.partition(" - ")[2] for level, text in core.lines if level == "error"} == {
        f"channel c has reached its {next(iter(bound))}"
    }


def test_a_crash_between_two_parts_leaves_each_letter_in_one_place() -> None:
    core = Core()
    core.follow(max_attempts=1)
    core.channel("c", "t.dead").policies.set({"max_depth": 3})
    many = [b"%d" % number for number in range(7)]
    put(core, *many)
    fail(core.reader())
    while not dead(core):
        settle(core, 1)
    were = dead(core)
    assert 0 < len(were) < 7
    core.start_again()
    core.channel("c", "t.dead").policies.set({})
    assert left(core) == []
    retry(core)
    assert sorted(dead(core)) == many


def test_held_messages_count_in_a_seek_and_an_empty() -> None:
    core = Core(retention_time=3600.0)
    channel = core.follow(max_attempts=1)
    core.channel("c", "t.dead").policies.set({"max_depth": 1})
    put(core, *[b"%d" % number for number in range(4)])
    fail(core.reader())
    settle(core, 60)
    end = core.topic().released
    assert channel.preview_seek(end, skips_all=True) == (3, 0, 0, 0)
    start = core.topic().reader.kept_from
    assert channel.preview_seek(start) == channel.preview_seek(start + 2)._replace(replayed=1, depth=4) == (0, 1, 4, 0)
    channel.empty()
    assert (channel.depth, channel.unfinished_count) == (0, 0)
    settle(core)
    assert dead(core) == [b"0"]


@pytest.mark.parametrize(
    ("topic", "given", "level", "reason"),
    [
        ("t", {"dead_letter_topic": "t"}, "info", "dead_letter_topic 't' is the topic itself: set it to another one"),
        ("t" * 60, {}, "error", f"topic '{'t' * 60}.dead' for dead letters has an invalid name: set dead_letter_topic"),
        ("t", {"dead_letter_topic": "d#ephemeral"}, "error", "dead_letter_topic 'd#ephemeral' is ephemeral"),
    ],
)
def test_a_pattern_that_gives_an_unusable_topic_is_logged_and_messages_are_delivered(
    topic: str, given: dict[str, object], level: str, reason: str
) -> None:
    rule = ChannelRule("*/*", {"max_attempts": 1, **given})
    core = Core(channel_rules=(rule,))
    reader = core.reader(topic=topic)
    put(core, b"1", topic=topic)
    for attempts in (1, 2, 3):
        (message,) = reader.read()
        assert message.attempts == attempts
        reader.requeue(message.id)
    (line,) = [text for at, text in core.lines if at == level and "dead letters" in text]
    assert line.startswith(f"CHANNEL(c): messages of topic {topic} do not become dead letters here - {reason}")
    core.channel(topic=topic).policies.set({"max_depth": 5})
    with pytest.raises(InvalidPolicy):
        core.channel(topic=topic).policies.set({"max_attempts": 2})


def test_a_dead_letter_is_not_moved_any_further(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    settle(core)
    letters = core.channel("c", "t.dead")
    letters.policies.set({"max_attempts": 1})
    reader = core.reader("c", "t.dead")
    for attempts in (1, 2, 3):
        settle(core)
        (message,) = reader.read()
        assert message.attempts == attempts
        reader.requeue(message.id)
    assert "t.dead.dead" not in core.broker.topics


@pytest.mark.parametrize("topic", ["t.dead", "t.dead#ephemeral"])
@pytest.mark.parametrize("policy", [{"max_attempts": 1}, {"max_attempts": 1, "requeue_delay": 60.0}])
def test_a_dead_letter_that_fails_waits_as_long_as_any_message(policy: dict[str, object], topic: str) -> None:
    source = topic.replace(".dead", "")
    core = BrokerHarness()
    core.channel(topic=source).policies.set({"max_attempts": 1})
    core.channel(topic=topic).policies.set(policy)
    put(core, b"m", topic=source)
    fail(core.reader(topic=source))
    settle(core)
    reader = core.reader(topic=topic)
    (letter,) = reader.read()
    reader.requeue(letter.id, 0.0 if "requeue_delay" in policy else 60.0)
    settle(core)
    assert core.channel(topic=topic).deferred_count == 1
    core.wait(40.0)
    assert reader.read() == []
    core.wait(40.0)
    (letter,) = reader.read()
    assert letter.attempts == 2


@pytest.mark.parametrize(
    ("topic", "given", "line"),
    [
        ("t", {"dead_letter_topic": "t"}, "dead_letter_topic 't' is the topic itself: set it to another one"),
        (
            "t" * 60,
            {},
            f"topic '{'t' * 60}.dead' for dead letters has an invalid name: set dead_letter_topic to another one",
        ),
        (
            "t",
            {"dead_letter_topic": "d#ephemeral"},
            "dead_letter_topic 'd#ephemeral' is ephemeral, and topic 't' is not: set it to a durable one",
        ),
    ],
)
def test_a_topic_that_cannot_have_them_is_refused(topic: str, given: dict[str, object], line: str) -> None:
    core = Core()
    with pytest.raises(InvalidPolicy) as refused:
        core.channel(topic=topic).policies.set({"max_attempts": 1, **given})
    assert str(refused.value) == line
    assert core.channel(topic=topic).policy.max_attempts == 0


def test_an_ephemeral_channel_has_dead_letters_too() -> None:
    core = Core()
    reader = core.reader("e#ephemeral")
    reader.channel.policies.set({"max_attempts": 1})
    put(core, b"1")
    fail(reader)
    settle(core)
    assert dead(core) == [b"1"]
    assert core.broker.topics["t.dead"].channels == {}
    assert core.reader("any", "t.dead").bodies() == [b"1"]


def test_an_ephemeral_topic_has_an_ephemeral_one_for_them() -> None:
    core = Core()
    channel = core.channel(topic="t#ephemeral", name="c#ephemeral")
    channel.policies.set({"max_attempts": 1})
    core.put(b"1", topic="t#ephemeral")
    fail(Reader(core, channel))
    settle(core)
    assert core.broker.topics["t.dead#ephemeral"].depth == 1


# -- meanwhile


def test_emptying_the_channel_forgets_them(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    core.channel().empty()
    settle(core)
    assert (dead(core), left(core), core.channel().held) == ([], [], [])


def test_a_seek_while_they_are_stored_delivers_them_again_and_counts_right() -> None:
    core = Core(durability="fsync", retention_time=3600.0)
    channel = core.follow(max_attempts=1)
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    core.lands_at_once = False
    settle(core)
    assert core.batch is not None
    channel.seek(core.topic().reader.kept_from)
    core.land()
    core.lands_at_once = True
    settle(core)
    assert [message.attempts for message in reader.read()] == [1]
    assert (channel.depth, channel.in_flight_count, channel.held) == (0, 1, [])


def test_deleting_the_channel_ends_it(core: Core) -> None:
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    fail(reader)
    core.topic().delete_channel("c")
    settle(core)
    assert dead(core) == []
    assert not [text for level, text in core.lines if level == "error"]


def test_headers_that_would_take_effect_again_are_set_aside(core: Core) -> None:
    put(core, b"1", ttl="5000", id="x")
    reader = core.reader()
    fail(reader)
    fail(reader)
    settle(core)
    headers = stored(core, "t.dead")[b"1"]
    assert (headers["nsq-dead-header-ttl"], headers["nsq-dead-header-id"]) == ("5000", "x")
    assert not {"ttl", "id"} & headers.keys()
