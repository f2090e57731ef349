"""Secrets of a context: which server gets them, and in which form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.doctor.cluster import check_cluster
from nsqtw.cli.stdlib_http import may_have_secret
from nsqtw.cluster import trust
from tests.cli.conftest import Nsqtw
from tests.cli.serving import serving

INFO = json.dumps({"version": "1.3.0", "broadcast_address": "127.0.0.1", "tcp_port": 0, "http_port": 0}).encode()


def producers(nsqd: str) -> bytes:
    """Return the answer of an nsqlookupd at which an nsqd with this HTTP address is registered."""
    host, _, port = nsqd.rpartition(":")
    return json.dumps({"producers": [{"broadcast_address": host, "http_port": int(port)}]}).encode()


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("word\n")
    return str(path)


@pytest.mark.parametrize("is_in_context", [False, True])
def test_doctor_sends_no_secret_over_plain_http_to_an_address_that_only_an_nsqlookupd_names(
    is_in_context: bool, secret_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the servers were on other machines."""
    monkeypatch.setattr(trust, "is_loopback", lambda host: False)
    by_nsqd: list[str] = []
    by_lookupd: list[str] = []
    with (
        serving("/info", INFO, secrets=by_nsqd) as nsqd,
        serving("/nodes", producers(nsqd), secrets=by_lookupd) as lookupd,
    ):
        access = ClusterAccess(
            lookupd_http_addresses=(lookupd,),
            nsqd_http_addresses=(nsqd,) if is_in_context else (),
            secret_file=secret_file,
        )
        list(check_cluster(access))
    assert set(by_lookupd) == {"Bearer word"}
    assert set(by_nsqd) == {"Bearer word" if is_in_context else ""}


def test_doctor_sends_a_secret_to_a_loopback_address_that_an_nsqlookupd_names(secret_file: str) -> None:
    by_nsqd: list[str] = []
    with serving("/info", INFO, secrets=by_nsqd) as nsqd, serving("/nodes", producers(nsqd)) as lookupd:
        list(check_cluster(ClusterAccess(lookupd_http_addresses=(lookupd,), secret_file=secret_file)))
    assert set(by_nsqd) == {"Bearer word"}


@pytest.mark.parametrize("words", [("doctor",), ("pub", "orders", "x")])
def test_a_secret_for_basic_authentication(words: tuple[str, ...], nsqtw: Nsqtw, tmp_path: Path) -> None:
    secret = tmp_path / "basic"
    secret.touch(0o600)
    secret.write_text("basic user:word")
    seen: list[str] = []
    with serving("/info", INFO, secrets=seen) as nsqd:
        nsqtw("--nsqd-http-address", nsqd, "--secret-file", str(secret), *words)
    assert set(seen) == {"Basic dXNlcjp3b3Jk"}


@pytest.mark.parametrize(
    ("address", "more", "may"),
    [
        ("given.example:4151", {}, True),
        ("https://given.example:4152", {}, True),
        ("127.0.0.1:4151", {}, True),
        ("named.example:4151", {}, False),
        ("https://named.example:4152", {}, False),
        ("https://named.example:4152", {"tls_ca_file": "ca.pem"}, True),
        ("https://named.example:4152", {"tls_ca_file": "ca.pem", "tls_insecure": True}, False),
        ("named.example:4151", {"tls_ca_file": "ca.pem"}, False),
        ("named.example:4151", {"secrets_to_named_nodes": True}, True),
        ("https://named.example:4152", {"secrets_to_named_nodes": True}, True),
    ],
)
def test_servers_that_may_have_the_secret(address: str, more: dict[str, Any], may: bool) -> None:
    given = ("given.example:4151", "https://given.example:4152")
    assert may_have_secret(ClusterAccess(nsqd_http_addresses=given, **more), address) == may
