"""A new topic that is asked about, and held meanwhile. The test owns time and every connection."""

from __future__ import annotations

from nsqtw.discovery.new_topics import MAX_QUERIES
from tests.discovery.harness import TIMEOUT, Harness
from tests.discovery.test_protocol import sized
from tests.http.broker_fixture import Log

UNAVAILABLE = "error: no available nsqlookupd to query for channels to pre-create for topic t"
FAILED = "warn: failed to query nsqlookupd for channels to pre-create for topic t - "


def test_a_new_topic_gets_the_channels_it_has_elsewhere_before_its_first_message_goes_out() -> None:
    harness = Harness("a:1", "b:1")
    harness.meet("a:1", "b:1")
    early = harness.core.reader("early")
    harness.put(b"1")
    harness.answer("a", "one", "two")
    assert (harness.channels(), early.bodies()) == ({"early": 0}, [])
    harness.put(b"2")
    harness.answer("b", "two", "three")
    assert harness.channels() == {"early": 2, "one": 2, "three": 2, "two": 2}
    assert early.bodies() == [b"1", b"2"]
    harness.put(b"3")
    assert harness.channels() == {"early": 0, "one": 3, "three": 3, "two": 3}


def test_an_old_topic_is_not_asked_about() -> None:
    harness = Harness("a:1")
    harness.meet("a:1")
    harness.put(b"1")
    harness.answer("a")
    harness.put(b"2")
    assert harness.core.reader().bodies() == [b"1", b"2"]
    assert list(harness.questions) == [("a", "t")]


def test_who_does_not_answer_is_waited_for_so_long_and_no_longer() -> None:
    harness = Harness("a:1", "b:1")
    harness.meet("a:1", "b:1")
    harness.put(b"1")
    harness.answer("a", "one")
    harness.clock.advance(TIMEOUT - 0.1)
    assert harness.channels() == {}
    with Log() as lines:
        harness.clock.advance(0.1)
    assert harness.channels() == {"one": 1}
    assert lines[0] == f"{FAILED}i/o timeout"


def test_who_answers_wrongly_leaves_it_to_the_others() -> None:
    harness = Harness("a:1", "b:1")
    harness.meet("a:1", "b:1")
    harness.put(b"1")
    with Log() as lines:
        harness.questions["a", "t"].errback(ValueError("got response 500"))
        harness.answer("b", "one")
    assert harness.channels() == {"one": 1}
    assert lines[0] == f"{FAILED}a:1: got response 500"


def test_one_that_is_being_connected_to_is_waited_for_and_one_that_is_away_is_not() -> None:
    harness = Harness("a:1", "b:1")
    harness.put(b"1")
    assert harness.questions == {}
    harness.attempts["b:1"].fail()
    harness.meet("a:1")
    harness.answer("a", "one")
    assert harness.channels() == {"one": 1}


def test_without_anybody_to_ask_the_topic_starts_at_once() -> None:
    harness = Harness("a:1")
    harness.attempts["a:1"].fail()
    with Log() as lines:
        reader = harness.core.reader()
        harness.put(b"1")
    assert UNAVAILABLE in lines
    assert reader.bodies() == [b"1"]


def test_silence_before_the_first_connection_is_waited_for_so_long_and_no_longer() -> None:
    harness = Harness("a:1")
    harness.attempts["a:1"].succeed()
    reader = harness.core.reader()
    harness.put(b"1")
    harness.clock.advance(TIMEOUT)
    assert reader.bodies() == [b"1"]


def test_one_that_goes_by_two_addresses_is_asked_once() -> None:
    harness = Harness("a:1", "b:1", "a:1")
    harness.meet("a:1", "b:1", itself="same")
    harness.put(b"1")
    harness.answer("same", "one")
    assert harness.channels() == {"one": 1}


def test_one_that_does_not_say_where_it_is_is_not_asked() -> None:
    harness = Harness("a:1")
    harness.attempts["a:1"].succeed()
    harness.attempts["a:1"].say(sized(b"{}"))
    with Log() as lines:
        harness.put(b"1")
    assert UNAVAILABLE in lines
    assert harness.core.reader().bodies() == [b"1"]


def test_an_ephemeral_topic_is_not_held() -> None:
    harness = Harness("a:1")
    harness.meet("a:1")
    reader = harness.core.reader("c#ephemeral", "t#ephemeral")
    harness.put(b"1", topic="t#ephemeral")
    assert reader.bodies() == [b"1"]
    harness.answer("a", "durable", topic="t#ephemeral")
    harness.put(b"2", topic="t#ephemeral")
    assert harness.channels("t#ephemeral")["durable"] == 1


def test_what_an_ephemeral_topic_has_kept_goes_to_all_channels_it_has_elsewhere() -> None:
    harness = Harness("a:1")
    harness.meet("a:1")
    harness.put(b"1", topic="t#ephemeral")
    harness.answer("a", "one", "two", topic="t#ephemeral")
    assert harness.channels("t#ephemeral") == {"one": 1, "two": 1}
    assert not harness.core.topic("t#ephemeral").is_awaiting_channels


def test_who_does_not_answer_takes_the_turns_of_no_other() -> None:
    harness = Harness("a:1", "b:1")
    harness.meet("a:1", "b:1")
    names = [f"t{number}" for number in range(MAX_QUERIES + 1)]
    for name in names:
        harness.put(b"1", topic=name)
    for name in names:
        harness.answer("b", "one", topic=name)
    harness.clock.advance(TIMEOUT)
    assert [harness.channels(name) for name in names] == [{"one": 1}] * len(names)


def test_what_cannot_be_made_does_not_keep_the_rest_from_being_made() -> None:
    harness = Harness("a:1", max_channels=1)
    harness.meet("a:1")
    harness.put(b"1")
    with Log() as lines:
        harness.answer("a", "one", "two")
    assert harness.channels() == {"one": 1}
    assert lines == ["error: TOPIC(t): nsqlookupd knows channel two, which cannot be made - channels exceed limit of 1"]


def test_a_topic_that_is_deleted_meanwhile_is_left_alone() -> None:
    harness = Harness("a:1")
    harness.meet("a:1")
    harness.put(b"1")
    topic = harness.core.topic()
    harness.core.broker.delete_topic("t")
    harness.answer("a", "one")
    assert (topic.channels, topic.is_awaiting_channels) == ({}, True)


def test_many_new_topics_are_asked_about_in_turns() -> None:
    harness = Harness("a:1")
    harness.meet("a:1")
    for number in range(MAX_QUERIES + 1):
        harness.core.topic(f"t{number}")
    assert len(harness.questions) == MAX_QUERIES
    harness.answer("a", topic="t0")
    assert len(harness.questions) == MAX_QUERIES + 1
    harness.clock.advance(TIMEOUT)
    assert not any(topic.is_awaiting_channels for topic in harness.core.broker.topics.values())


def test_after_a_crash_a_topic_that_was_held_is_asked_about_again() -> None:
    harness = Harness("a:1")
    harness.meet("a:1")
    harness.put(b"1")
    harness.core.save()
    harness.core.crash()
    restarted = Harness("a:1", core=harness.core)
    restarted.meet("a:1")
    restarted.answer("a", "one")
    assert restarted.channels() == {"one": 1}
