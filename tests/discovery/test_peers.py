"""All nsqlookupds of a broker. The test owns time and every connection."""

from __future__ import annotations

from pathlib import Path

from nsqtw.discovery.addresses import RESOLVE_SECONDS, LookupdAddress
from nsqtw.runtime.pump import Pump
from tests.discovery.harness import Harness
from tests.discovery.test_protocol import sized
from tests.http.broker_fixture import Log


def test_each_is_told_what_comes_and_goes() -> None:
    harness = Harness("a:1", "b:1")
    harness.meet("a:1")
    harness.core.channel("c")
    assert harness.heard("a:1") == ["REGISTER t", "REGISTER t c"]
    harness.core.channel("d")
    harness.core.topic("u")
    harness.meet("b:1")
    assert harness.heard("b:1") == ["REGISTER t c", "REGISTER t d", "REGISTER u"]
    harness.heard("a:1")
    harness.core.broker.delete_topic("t")
    for address in ("a:1", "b:1"):
        assert harness.heard(address) == ["UNREGISTER t c", "UNREGISTER t d", "UNREGISTER t"]


def test_a_new_topic_is_registered_before_its_first_publish_is_answered() -> None:
    harness = Harness("a:1", "b:1")
    harness.meet("a:1")
    heard: list[list[str]] = []
    harness.core.topic("new").put([b"x"], 0, lambda error: heard.append(harness.attempts["a:1"].heard()))
    harness.clock.advance(0)
    assert heard == [["REGISTER new"]]  # though the link to b:1 is not up


def test_addresses_change_while_it_runs() -> None:
    harness = Harness("a:1", "b:1", "b:1", "nonsense")
    harness.meet("a:1", "b:1")
    harness.core.options.lookupd_tcp_address = ("b:1", "c:1")
    with Log() as lines:
        harness.peers.follow()
    assert lines == [
        "info: LOOKUP(a:1): removing peer",
        "info: LOOKUP(c:1): adding peer",
        "info: LOOKUP connecting to c:1",
    ]
    assert harness.attempts["a:1"].is_closed
    assert not harness.attempts["b:1"].is_closed
    harness.meet("c:1")
    harness.core.topic()
    assert harness.heard("b:1") == harness.heard("c:1") == ["REGISTER t"]
    harness.core.options.lookupd_tcp_address = ()
    harness.peers.follow()
    assert harness.attempts["b:1"].is_closed
    harness.put(b"1", topic="u")
    assert harness.core.reader(topic="u").bodies() == [b"1"]


def test_a_broker_that_no_nsqlookupd_knows_is_unreachable() -> None:
    harness = Harness("a:1", "b:1")
    assert harness.peers.states() == {"a:1": False, "b:1": False}
    assert harness.peers.why_unreachable() == "connected to none of 2 nsqlookupds"
    harness.meet("b:1")
    assert harness.peers.states() == {"a:1": False, "b:1": True}
    assert harness.peers.why_unreachable() == ""
    harness.attempts["b:1"].lose()
    assert harness.peers.why_unreachable() == "connected to none of 2 nsqlookupds"
    harness.core.options.lookupd_tcp_address = ()
    harness.peers.follow()
    assert harness.peers.why_unreachable() == ""


def test_an_address_that_is_none_is_said() -> None:
    with Log() as lines:
        Harness("nonsense")
    assert lines == ["error: LOOKUP(nonsense): invalid address, expected host:port"]


def test_a_name_is_followed() -> None:
    harness = Harness()
    harness.names["dns://l:1"] = [LookupdAddress("10.0.0.1", 1, "l"), LookupdAddress("10.0.0.2", 1, "l")]
    harness.core.options.lookupd_tcp_address = ("dns://l:1",)
    harness.peers.follow()
    assert set(harness.attempts) == {"10.0.0.1:1", "10.0.0.2:1"}
    harness.meet("10.0.0.1:1", "10.0.0.2:1")
    harness.names["dns://l:1"] = [LookupdAddress("10.0.0.2", 1, "l"), LookupdAddress("10.0.0.3", 1, "l")]
    for _ in range(2):
        harness.clock.advance(RESOLVE_SECONDS / 2)
        for address in ("10.0.0.1:1", "10.0.0.2:1"):
            harness.attempts[address].say(sized(b"OK"))
    assert harness.attempts["10.0.0.1:1"].is_closed
    assert "10.0.0.3:1" in harness.attempts
    harness.core.options.lookupd_tcp_address = ()
    harness.peers.follow()
    assert harness.attempts["10.0.0.2:1"].is_closed


def test_the_stop_closes_all_and_a_topic_that_is_held_stays_so() -> None:
    harness = Harness("a:1", "dns://l:1")
    harness.names["dns://l:1"] = []
    harness.attempts["a:1"].fail()
    harness.clock.advance(1)
    harness.meet("a:1")
    harness.put(b"1")
    with Log() as lines:
        harness.peers.stop()
    assert lines[-1] == "info: LOOKUP: closing"
    assert harness.attempts["a:1"].is_closed
    assert harness.core.topic().is_awaiting_channels
    harness.attempts["a:1"].lose()
    harness.clock.advance(2 * RESOLVE_SECONDS)
    assert {type(call.func.__self__) for call in harness.clock.getDelayedCalls()} <= {Pump}


def test_a_secret_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n")
    harness = Harness("a:1", lookupd_secret_file=str(file))
    harness.meet("a:1")
    assert b'"secret":"first"' in harness.attempts["a:1"].transport.value()
    file.unlink()
    harness.attempts["a:1"].lose()
    harness.clock.advance(1)
    with Log() as lines:
        harness.meet("a:1")
    assert b'"secret":"first"' in harness.attempts["a:1"].transport.value()
    why = f"--lookupd-secret-file cannot be used - open {file}: no such file or directory"
    assert lines == [f"error: LOOKUP: the secret stays as it was - {why}"]


def test_an_address_that_was_set_over_http_gets_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    harness = Harness("a:1", lookupd_secret_file=str(file))
    harness.meet("a:1")
    harness.core.broker.options.lookupd_tcp_address = ("a:1", "evil:1")
    harness.peers.follow()
    with Log() as lines:
        harness.meet("evil:1")
    assert b"hunter2" not in harness.attempts["evil:1"].transport.value()
    why = "gets no secret, because PUT /config has set it: name it in --lookupd-tcp-address, and reload"
    assert lines == [f"warn: LOOKUP(evil:1): {why}"]
    harness.put(b"1")
    assert harness.shown == {"a": "hunter2", "evil": ""}


def test_an_address_that_was_set_over_http_and_is_one_of_the_options_gets_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    harness = Harness("a:1", lookupd_secret_file=str(file))
    for addresses in ((), ("a:1",)):
        harness.core.broker.options.lookupd_tcp_address = addresses
        harness.peers.follow()
    harness.meet("a:1")
    assert b"hunter2" in harness.attempts["a:1"].transport.value()


def test_the_places_of_a_name_in_the_options_get_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    harness = Harness("dns://l:1", lookupd_secret_file=str(file))
    harness.names["dns://l:1"] = [LookupdAddress("10.0.0.1", 1, "l")]
    harness.clock.advance(RESOLVE_SECONDS)
    harness.meet("10.0.0.1:1")
    assert b"hunter2" in harness.attempts["10.0.0.1:1"].transport.value()
