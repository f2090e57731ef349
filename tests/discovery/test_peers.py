"""All nsqlookupds of a broker. The test owns time and every connection."""

from __future__ import annotations

from pathlib import Path

from nsqtw.discovery.addresses import RESOLVE_SECONDS, LookupdAddress
from nsqtw.runtime.pump import Pump
from tests.discovery.harness import House
from tests.discovery.test_protocol import sized
from tests.http.broker_fixture import Log


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


def test_a_new_topic_is_registered_before_its_first_publish_is_answered() -> None:
    house = House("a:1", "b:1")
    house.meet("a:1")
    heard: list[list[str]] = []
    house.world.topic("new").put([b"x"], 0, lambda error: heard.append(house.attempts["a:1"].heard()))
    house.clock.advance(0)
    assert heard == [["REGISTER new"]]  # though the link to b:1 is not up


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
    house.names["dns://l:1"] = [LookupdAddress("10.0.0.1", 1, "l"), LookupdAddress("10.0.0.2", 1, "l")]
    house.world.options.lookupd_tcp_address = ("dns://l:1",)
    house.peers.follow()
    assert set(house.attempts) == {"10.0.0.1:1", "10.0.0.2:1"}
    house.meet("10.0.0.1:1", "10.0.0.2:1")
    house.names["dns://l:1"] = [LookupdAddress("10.0.0.2", 1, "l"), LookupdAddress("10.0.0.3", 1, "l")]
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
    assert {type(call.func.__self__) for call in house.clock.getDelayedCalls()} <= {Pump}


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
    why = f"--lookupd-secret-file cannot be used - open {file}: no such file or directory"
    assert lines == [f"error: LOOKUP: the secret stays as it was - {why}"]
