"""Addresses: what is TCP, what is a unix socket, and what happens when they cannot be had."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock

from nsqtw.errors import OptionError
from nsqtw.net.listen import UNIX_PORT, Listener
from nsqtw.options.addresses import join_host_port, split_host_port


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose name fits into the 107 bytes that a unix socket's path may have."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:4150", ("127.0.0.1", "4150")),
        (":4150", ("", "4150")),
        ("host:", ("host", "")),
        ("[::1]:4150", ("::1", "4150")),
        ("/run/nsqd.sock", None),
        ("::1", None),
        ("", None),
    ],
)
def test_an_address_is_tcp_when_it_is_host_and_port(address: str, parts: tuple[str, str] | None) -> None:
    assert parts == split_host_port(address)


def test_host_and_port_are_joined_with_brackets_around_ipv6() -> None:
    assert join_host_port("127.0.0.1", 4150) == "127.0.0.1:4150"
    assert join_host_port("::1", 4150) == "[::1]:4150"


def test_port_0_becomes_the_real_port() -> None:
    listener = Listener("127.0.0.1:0")
    assert listener.port > 0
    assert listener.address == f"127.0.0.1:{listener.port}"
    listener.close()


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0", "[0::0]:0"])
@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
def test_no_host_or_the_unspecified_one_is_every_address_of_both_kinds(address: str, client: str) -> None:
    listener = Listener(address)
    with socket.create_connection((client, listener.port)) as connected:
        assert connected.getpeername()[0] == client
    listener.close()


def test_every_address_is_shown_as_an_ipv6_one() -> None:
    listener = Listener("0.0.0.0:0")
    assert listener.address == f"[::]:{listener.port}"
    with pytest.raises(OptionError, match=rf"listen tcp 0\.0\.0\.0:{listener.port}: bind: address already in use"):
        Listener(f"0.0.0.0:{listener.port}")
    listener.close()


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    for address in (":0", "0.0.0.0:0"):
        listener = Listener(address)
        assert listener.address == f"0.0.0.0:{listener.port}"
        listener.close()


@pytest.mark.parametrize("address", ["localhost:0", ":0", "0.0.0.0:0"])
def test_clients_that_come_early_wait_in_the_backlog(address: str) -> None:
    listener = Listener(address)
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        assert client.getpeername()[1] == listener.port
    listener.close()


def test_a_unix_socket_is_gone_when_it_is_closed(short_path: Path) -> None:
    path = short_path / "nsqd.sock"
    listener = Listener(str(path))
    assert (listener.address, listener.port) == (str(path), UNIX_PORT)
    assert path.is_socket()
    listener.close()
    assert not path.exists()


def test_a_unix_socket_that_serves_is_for_user_and_group_only(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twisted changes the mode when a port begins to listen. At no moment may others connect."""
    modes: list[int] = []
    chmod = os.chmod
    monkeypatch.setattr(os, "chmod", lambda path, mode: (modes.append(mode), chmod(path, mode)))
    path = short_path / "nsqd.sock"
    reactor = MemoryReactorClock()
    port = Listener(str(path)).serve(reactor, Factory())
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert modes
    assert all(mode & 0o007 == 0 for mode in modes)
    port.stopListening()
    reactor.advance(0)
    assert not path.exists()


def test_an_address_in_use_is_one_clear_line(short_path: Path) -> None:
    for network, address in (("tcp", "127.0.0.1:0"), ("unix", str(short_path / "nsqd.sock"))):
        first = Listener(address)
        with pytest.raises(OptionError) as refused:
            Listener(first.address)
        reason = f"listen {network} {first.address}: bind: address already in use"
        assert str(refused.value) == f"listen ({first.address}) failed - {reason}"
        first.close()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:65536", "listen tcp: address 65536: invalid port"),
        ("127.0.0.1:-1", "listen tcp: address -1: invalid port"),
        ("127.0.0.1:nowhere", "listen tcp: address tcp/nowhere: unknown port"),
        ("127.0.0.1: 0", "listen tcp: address tcp/ 0: unknown port"),
        ("no..where:0", "listen tcp: lookup no..where: "),
        ("192.0.2.1:0", "listen tcp 192.0.2.1:0: bind: cannot assign requested address"),
        ("/no/such/directory/socket", "listen unix /no/such/directory/socket: bind: no such file or directory"),
        ("", "missing address"),
    ],
)
def test_an_address_that_is_none_is_one_clear_line(address: str, reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        Listener(address)
    assert str(refused.value).startswith(f"listen ({address}) failed - {reason}")
