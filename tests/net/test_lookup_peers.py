"""All nsqlookupds of a broker, and a new topic that is asked about. The test owns time and every connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from nsqtw.net.lookup_peers import LookupPeers
from nsqtw.net.lookup_place import RESOLVE_SECONDS, Place
from nsqtw.net.lookup_starts import MOST_QUERIES
from tests.core.world import World
from tests.net.broker_fixture import Log, WorldPump, Writer
from tests.net.test_lookup_dialogue import sized
from tests.net.test_lookup_link import Attempt

TIMEOUT = 5.0
UNAVAILABLE = "error: no available nsqlookupd to query for channels to pre-create for topic t"
FAILED = "warn: failed to query nsqlookupd for channels to pre-create for topic t - "


def quiet(level: str, text: str, /, **fields: object) -> None:
    """The dialogues' lines are their own tests' business."""


class House:
    """A broker with nsqlookupds, and the network between them."""

    def __init__(self, *addresses: str, world: World | None = None, **options: Any) -> None:
        self.attempts: dict[str, Attempt] = {}
        """The newest to each place."""
        self.questions: dict[tuple[str, str], Deferred[list[str]]] = {}
        """By the host over HTTP and the topic."""
        self.names: dict[str, list[Place]] = {}
        self.clock = Clock()
        given = {"lookupd_tcp_address": addresses, "http_client_request_timeout": TIMEOUT}
        self.world = world or World(**given, **options)
        pump = WorldPump(self.clock, self.world, Writer(self.world))
        self.peers = LookupPeers(self.clock, self.world.broker, pump, quiet, self)  # type: ignore[arg-type]
        self.peers.start()

    # -- Network API

    def connect(self, place: Place, factory: Any) -> Deferred[Any]:
        self.attempts[str(place)] = Attempt(factory)
        return self.attempts[str(place)].outcome

    async def places(self, address: str) -> list[Place]:
        return self.names.get(address, [])

    async def ask(self, http_address: str, topic: str, name: str, secret: str) -> list[str]:
        self.questions[http_address.partition(":")[0], topic] = asked = Deferred[list[str]]()
        return await asked

    # -- what nsqlookupds do

    def meet(self, *addresses: str, itself: str = "") -> None:
        """They are there; over HTTP each is at its own host, or all at `itself`."""
        for address in addresses:
            self.attempts[address].succeed()
            said = {"broadcast_address": itself or address.partition(":")[0], "http_port": 4161}
            self.attempts[address].say(sized(json.dumps(said).encode()))

    def heard(self, address: str) -> list[str]:
        self.clock.advance(0)
        return self.attempts[address].heard()

    def answer(self, host: str, *channels: str, topic: str = "t") -> None:
        self.questions[host, topic].callback(list(channels))

    # -- what clients do and see

    def put(self, *bodies: bytes, topic: str = "t") -> None:
        """Publish, which is answered at once."""
        answers = self.world.put(*bodies, topic=topic)
        self.world.turn()
        assert answers == [None]

    def channels(self, topic: str = "t") -> dict[str, int]:
        """Each with its depth."""
        return {name: channel.depth for name, channel in self.world.topic(topic).channels.items()}


def test_each_is_told_what_comes_and_goes() -> None:
    house = House("a:1", "b:1")
    house.meet("a:1")
    house.world.channel("c")
    assert house.heard("a:1") == ["REGISTER t", "REGISTER t c"]
    house.world.channel("d")
    house.world.topic("u")
    house.meet("b:1")
    assert house.heard("b:1") == ["REGISTER t c", "REGISTER t d", "REGISTER u"]
    house.heard("a:1")
    house.world.broker.delete_topic("t")
    for address in ("a:1", "b:1"):
        assert house.heard(address) == ["UNREGISTER t c", "UNREGISTER t d", "UNREGISTER t"]


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


def test_addresses_change_while_it_runs() -> None:
    house = House("a:1", "b:1", "b:1", "nonsense")
    house.meet("a:1", "b:1")
    house.world.options.lookupd_tcp_address = ("b:1", "c:1")
    with Log() as lines:
        house.peers.follow()
    assert lines == [
        "info: LOOKUP(a:1): removing peer",
        "info: LOOKUP(c:1): adding peer",
        "info: LOOKUP connecting to c:1",
    ]
    assert house.attempts["a:1"].is_closed
    assert not house.attempts["b:1"].is_closed
    house.meet("c:1")
    house.world.topic()
    assert house.heard("b:1") == house.heard("c:1") == ["REGISTER t"]
    house.world.options.lookupd_tcp_address = ()
    house.peers.follow()
    assert house.attempts["b:1"].is_closed
    house.put(b"1", topic="u")
    assert house.world.reader(topic="u").bodies() == [b"1"]


def test_an_address_that_is_none_is_said() -> None:
    with Log() as lines:
        House("nonsense")
    assert lines == ["error: LOOKUP(nonsense): it is no host:port"]


def test_a_name_is_followed() -> None:
    house = House()
    house.names["dns://l:1"] = [Place("10.0.0.1", 1, "l"), Place("10.0.0.2", 1, "l")]
    house.world.options.lookupd_tcp_address = ("dns://l:1",)
    house.peers.follow()
    assert set(house.attempts) == {"10.0.0.1:1", "10.0.0.2:1"}
    house.meet("10.0.0.1:1", "10.0.0.2:1")
    house.names["dns://l:1"] = [Place("10.0.0.2", 1, "l"), Place("10.0.0.3", 1, "l")]
    for _ in range(2):
        house.clock.advance(RESOLVE_SECONDS / 2)
        for address in ("10.0.0.1:1", "10.0.0.2:1"):
            house.attempts[address].say(sized(b"OK"))
    assert house.attempts["10.0.0.1:1"].is_closed
    assert "10.0.0.3:1" in house.attempts
    house.world.options.lookupd_tcp_address = ()
    house.peers.follow()
    assert house.attempts["10.0.0.2:1"].is_closed


def test_the_stop_closes_all_and_a_topic_that_is_held_stays_so() -> None:
    house = House("a:1", "dns://l:1")
    house.names["dns://l:1"] = []
    house.attempts["a:1"].fail()
    house.clock.advance(1)
    house.meet("a:1")
    house.put(b"1")
    with Log() as lines:
        house.peers.stop()
    assert lines[-1] == "info: LOOKUP: closing"
    assert house.attempts["a:1"].is_closed
    assert house.world.topic().is_held
    house.attempts["a:1"].lose()
    house.clock.advance(2 * RESOLVE_SECONDS)
    assert not house.clock.getDelayedCalls()


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


def test_a_secret_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n")
    house = House("a:1", lookupd_secret_file=str(file))
    house.meet("a:1")
    assert b'"secret":"first"' in house.attempts["a:1"].transport.value()
    file.unlink()
    house.attempts["a:1"].lose()
    house.clock.advance(1)
    with Log() as lines:
        house.meet("a:1")
    assert b'"secret":"first"' in house.attempts["a:1"].transport.value()
    assert lines == [f"error: LOOKUP: the secret stays as it was - open {file}: no such file or directory"]
