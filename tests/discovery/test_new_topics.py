"""A new topic that is asked about, and held meanwhile. The test owns time and every connection."""

from __future__ import annotations

from nsqtw.discovery.new_topics import MOST_QUERIES
from tests.discovery.harness import TIMEOUT, House
from tests.discovery.test_protocol import sized
from tests.http.broker_fixture import Log

UNAVAILABLE = "error: no available nsqlookupd to query for channels to pre-create for topic t"
FAILED = "warn: failed to query nsqlookupd for channels to pre-create for topic t - "


def test_a_new_topic_gets_the_channels_it_has_elsewhere_before_its_first_message_goes_out() -> None:
    house = House("a:1", "b:1")
    house.meet("a:1", "b:1")
    early = house.world.reader("early")
    house.put(b"1")
    house.answer("a", "one", "two")
    assert (house.channels(), early.bodies()) == ({"early": 0}, [])
    house.put(b"2")
    house.answer("b", "two", "three")
    assert house.channels() == {"early": 2, "one": 2, "three": 2, "two": 2}
    assert early.bodies() == [b"1", b"2"]
    house.put(b"3")
    assert house.channels() == {"early": 0, "one": 3, "three": 3, "two": 3}


def test_an_old_topic_is_not_asked_about() -> None:
    house = House("a:1")
    house.meet("a:1")
    house.put(b"1")
    house.answer("a")
    house.put(b"2")
    assert house.world.reader().bodies() == [b"1", b"2"]
    assert list(house.questions) == [("a", "t")]


def test_who_does_not_answer_is_waited_for_so_long_and_no_longer() -> None:
    house = House("a:1", "b:1")
    house.meet("a:1", "b:1")
    house.put(b"1")
    house.answer("a", "one")
    house.clock.advance(TIMEOUT - 0.1)
    assert house.channels() == {}
    with Log() as lines:
        house.clock.advance(0.1)
    assert house.channels() == {"one": 1}
    assert lines[0] == f"{FAILED}i/o timeout"


def test_who_answers_wrongly_leaves_it_to_the_others() -> None:
    house = House("a:1", "b:1")
    house.meet("a:1", "b:1")
    house.put(b"1")
    with Log() as lines:
        house.questions["a", "t"].errback(ValueError("got response 500"))
        house.answer("b", "one")
    assert house.channels() == {"one": 1}
    assert lines[0] == f"{FAILED}a:1: got response 500"


def test_one_that_is_being_connected_to_is_waited_for_and_one_that_is_away_is_not() -> None:
    house = House("a:1", "b:1")
    house.put(b"1")
    assert house.questions == {}
    house.attempts["b:1"].fail()
    house.meet("a:1")
    house.answer("a", "one")
    assert house.channels() == {"one": 1}


def test_without_anybody_to_ask_the_topic_starts_at_once() -> None:
    house = House("a:1")
    house.attempts["a:1"].fail()
    with Log() as lines:
        reader = house.world.reader()
        house.put(b"1")
    assert UNAVAILABLE in lines
    assert reader.bodies() == [b"1"]


def test_silence_before_the_first_connection_is_waited_for_so_long_and_no_longer() -> None:
    house = House("a:1")
    house.attempts["a:1"].succeed()
    reader = house.world.reader()
    house.put(b"1")
    house.clock.advance(TIMEOUT)
    assert reader.bodies() == [b"1"]


def test_one_that_goes_by_two_addresses_is_asked_once() -> None:
    house = House("a:1", "b:1", "a:1")
    house.meet("a:1", "b:1", itself="same")
    house.put(b"1")
    house.answer("same", "one")
    assert house.channels() == {"one": 1}


def test_one_that_does_not_say_where_it_is_is_not_asked() -> None:
    house = House("a:1")
    house.attempts["a:1"].succeed()
    house.attempts["a:1"].say(sized(b"{}"))
    with Log() as lines:
        house.put(b"1")
    assert UNAVAILABLE in lines
    assert house.world.reader().bodies() == [b"1"]


def test_an_ephemeral_topic_is_not_held() -> None:
    house = House("a:1")
    house.meet("a:1")
    reader = house.world.reader("c#ephemeral", "t#ephemeral")
    house.put(b"1", topic="t#ephemeral")
    assert reader.bodies() == [b"1"]
    house.answer("a", "durable", topic="t#ephemeral")
    house.put(b"2", topic="t#ephemeral")
    assert house.channels("t#ephemeral")["durable"] == 1


def test_what_an_ephemeral_topic_has_kept_goes_to_all_channels_it_has_elsewhere() -> None:
    house = House("a:1")
    house.meet("a:1")
    house.put(b"1", topic="t#ephemeral")
    house.answer("a", "one", "two", topic="t#ephemeral")
    assert house.channels("t#ephemeral") == {"one": 1, "two": 1}
    assert not house.world.topic("t#ephemeral").is_held


def test_who_does_not_answer_takes_the_turns_of_no_other() -> None:
    house = House("a:1", "b:1")
    house.meet("a:1", "b:1")
    names = [f"t{number}" for number in range(MOST_QUERIES + 1)]
    for name in names:
        house.put(b"1", topic=name)
    for name in names:
        house.answer("b", "one", topic=name)
    house.clock.advance(TIMEOUT)
    assert [house.channels(name) for name in names] == [{"one": 1}] * len(names)


def test_what_cannot_be_made_does_not_keep_the_rest_from_being_made() -> None:
    house = House("a:1", max_channels=1)
    house.meet("a:1")
    house.put(b"1")
    with Log() as lines:
        house.answer("a", "one", "two")
    assert house.channels() == {"one": 1}
    assert lines == ["error: TOPIC(t): nsqlookupd knows channel two, which cannot be made - channels exceed limit of 1"]


def test_a_topic_that_is_deleted_meanwhile_is_left_alone() -> None:
    house = House("a:1")
    house.meet("a:1")
    house.put(b"1")
    topic = house.world.topic()
    house.world.broker.delete_topic("t")
    house.answer("a", "one")
    assert (topic.channels, topic.is_held) == ({}, True)


def test_many_new_topics_are_asked_about_in_turns() -> None:
    house = House("a:1")
    house.meet("a:1")
    for number in range(MOST_QUERIES + 1):
        house.world.topic(f"t{number}")
    assert len(house.questions) == MOST_QUERIES
    house.answer("a", topic="t0")
    assert len(house.questions) == MOST_QUERIES + 1
    house.clock.advance(TIMEOUT)
    assert not any(topic.is_held for topic in house.world.broker.topics.values())


def test_after_a_crash_a_topic_that_was_held_is_asked_about_again() -> None:
    house = House("a:1")
    house.meet("a:1")
    house.put(b"1")
    house.world.save()
    house.world.crash()
    restarted = House("a:1", world=house.world)
    restarted.meet("a:1")
    restarted.answer("a", "one")
    assert restarted.channels() == {"one": 1}
