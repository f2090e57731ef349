"""Hosts and addresses in options, headers and answers."""

from __future__ import annotations

import pytest

from nsqtw.options.addresses import host_of, ip_of, is_loopback


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.", "127.0.0.1", "127.255.0.1", "127.0.0.1.", "127.1", "::1", "0:0:0:0:0:0:0:1"]
    + ["::ffff:127.0.0.1", "::FFFF:127.0.0.1", "2130706433"],
)
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "127.1.1.1.1", "127.0.0.1.evil.example", "127.", "128.0.0.1", "0.0.0.0", "::", "::2", "localhost.evil.example"]
    + ["127.0.0.1 x", "127.0.0.1\n", "127.0.0.\uff11", "::ffff:10.0.0.1", "localhost:80"],
)
def test_no_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("broker", "broker"),
        ("broker:4151", "broker"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("", ""),
        (":80", ""),
    ],
)
def test_the_host_of_an_address(text: str, host: str) -> None:
    assert host_of(text) == host


@pytest.mark.parametrize("host", ["10.0.0.1", "fe80::1%eth0", "fe80::1%25eth0", "::ffff:10.0.0.1", "0"])
def test_an_address(host: str) -> None:
    assert ip_of(host) is not None


@pytest.mark.parametrize("host", ["broker", "10.0.0.1.example", "10.0.0.256", "", "fe80::1::2", "10.0.0.1 a"])
def test_a_name(host: str) -> None:
    assert ip_of(host) is None
