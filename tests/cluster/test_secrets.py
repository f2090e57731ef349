"""Secrets for the servers of a cluster: which server gets one, and what is said of one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from twisted.internet import ssl

from nsqtw.cli.failures import explained
from nsqtw.cluster import trust
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.credentials import ClusterCredentials
from nsqtw.errors import NoServerAnswered, PermissionRefused
from tests.admin.endpoint import endpoint
from tests.certificates import Certificates
from tests.cluster.answering import answer, ask, server
from tests.cluster.reactor import run
from tests.wire import HOST

SECRET = ClusterCredentials(nsqd_secret="word")


def wants_a_secret(head: str) -> bytes:
    if "Authorization: Bearer word" in head:
        return answer({"topics": []})
    return answer({"message": "CREDENTIAL_REQUIRED"}, "401 Unauthorized")


def test_a_secret_is_sent_only_when_it_is_asked_for() -> None:
    with server(wants_a_secret) as (address, heads):
        assert ask(address, "topics", credentials=SECRET).value == ()
    assert ["word" in head for head in heads] == [False, True]
    with server(lambda head: answer({"topics": []})) as (address, heads):
        ask(address, "topics", credentials=SECRET)
    assert ["word" in head for head in heads] == [False]


def producers(nsqd: str) -> bytes:
    """Return the answer of an nsqlookupd that names an nsqd with this HTTP address."""
    port = int(nsqd.rpartition(":")[2])
    return answer({"producers": [{"broadcast_address": HOST, "http_port": port, "tcp_port": 1, "hostname": "h"}]})


def authorizations(heads: list[str]) -> set[str]:
    """Return the secrets in heads of requests, "" for none."""
    return {head.partition("Authorization: ")[2].partition("\r\n")[0] for head in heads}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all servers be on other machines."""
    monkeypatch.setattr(trust, "is_loopback", lambda host: False)


def counted(lookupd: str, credentials: ClusterCredentials) -> Any:
    """Ask an nsqlookupd for nsqds, and these for their counters."""

    async def test(reactor: Any) -> Any:
        cluster = Cluster(reactor, lookupds=[lookupd], credentials=credentials)
        try:
            return await cluster.counter()
        finally:
            await cluster.close()

    return run(test)


def count_at(lookupd: str, credentials: ClusterCredentials) -> None:
    """Ask, whatever comes of it."""
    with suppress(NoServerAnswered):
        counted(lookupd, credentials)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_secret_is_not_sent_to_an_address_that_only_an_nsqlookupd_names(is_open: bool) -> None:
    with server(wants_a_secret) as (nsqd, heads), server(lambda head: producers(nsqd)) as (lookupd, _):
        count_at(lookupd, ClusterCredentials(nsqd_secret="word", sends_secrets_to_named_nodes=is_open))
    assert ("Bearer word" in authorizations(heads)) == is_open


@pytest.mark.usefixtures("elsewhere")
def test_an_nsqlookupd_that_names_itself_as_an_nsqd_gets_no_secret_of_nsqds() -> None:
    secrets = ClusterCredentials(nsqd_secret="of-nsqds", lookupd_secret="of-nsqlookupds")

    def lookupd(head: str) -> bytes:
        if "Authorization" not in head:
            return answer({}, "401 Unauthorized")
        return producers(address)

    with server(lookupd) as (address, heads):
        count_at(address, secrets)
    assert authorizations(heads) == {"", "Bearer of-nsqlookupds"}
    assert any(head.startswith("GET /stats") for head in heads)


@pytest.mark.usefixtures("elsewhere")
def test_an_address_that_is_no_longer_given_gets_no_secret() -> None:
    with server(wants_a_secret) as (address, heads), server(lambda head: producers(address)) as (lookupd, _):

        async def test(reactor: Any) -> None:
            cluster = Cluster(reactor, nsqds=[address], credentials=SECRET)
            await cluster.topics()
            assert authorizations(heads) == {"", "Bearer word"}
            heads.clear()
            cluster.nsqds, cluster.lookupds = (), (lookupd,)
            with suppress(NoServerAnswered):
                await cluster.counter()
            await cluster.close()

        run(test)
    assert authorizations(heads) == {""}


def test_an_nsqlookupd_that_was_not_given_gets_no_secret() -> None:
    """Not on a loopback address either, which another user of the machine may have."""
    secret = ClusterCredentials(lookupd_secret="word", sends_secrets_to_named_nodes=True)
    with server(wants_a_secret) as (given, heads), server(wants_a_secret) as (other, other_heads):

        async def test(reactor: Any) -> None:
            cluster = Cluster(reactor, lookupds=[given], credentials=secret)
            for addresses in ([other], [given, other]):
                cluster.ask_lookupds(addresses)
                with suppress(NoServerAnswered):
                    warnings = (await cluster.topics()).warnings
            assert any("PUT /config has set this address" in str(warning) for warning in warnings)
            await cluster.close()

        run(test)
    assert authorizations(other_heads) == {""}
    assert "Bearer word" in authorizations(heads)


# -- HTTPS


@contextmanager
def https_nsqd(certificates: Certificates) -> Iterator[tuple[str, list[str]]]:
    """Run an nsqd that takes HTTPS only. The address of its HTTP port, and the secrets it got, "" for none."""
    got: list[str] = []
    with endpoint(certificates.server) as nsqd:
        nsqd.body = b'{"version": "1.3.0", "health": "OK", "topics": []}'
        port = int(nsqd.address.rpartition(":")[2])
        with server(lambda head: answer({"https_port": port}, "403 Forbidden")) as (address, _):
            yield address, got
        got += [fields.get("authorization", "") for _, fields, _ in nsqd.requests]


@pytest.fixture
def public_authority(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system trust the authority of the tests, which signs for each its own name."""
    with open(certificates.authority.certificate, "rb") as file:
        authority = ssl.Certificate.loadPEM(file.read())
    monkeypatch.setattr(ssl, "platformTrust", lambda: ssl.trustRootFromCertificates([authority]))


@pytest.mark.usefixtures("elsewhere", "public_authority")
@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_public_certificate_is_no_proof_of_belonging_to_the_cluster(
    certificates: Certificates, is_allowed: bool
) -> None:
    credentials = ClusterCredentials(nsqd_secret="word", sends_secrets_to_named_nodes=is_allowed)
    with https_nsqd(certificates) as (address, got), server(lambda head: producers(address)) as (lookupd, _):
        count_at(lookupd, credentials)
    assert set(got) == {"Bearer word" if is_allowed else ""}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("is_verified", [False, True])
def test_a_certificate_of_an_own_authority_is_one_if_it_is_verified(
    certificates: Certificates, is_verified: bool
) -> None:
    credentials = ClusterCredentials(
        nsqd_secret="word",
        root_ca_file=certificates.authority.certificate,
        is_verification_skipped=not is_verified,
    )
    with https_nsqd(certificates) as (address, got), server(lambda head: producers(address)) as (lookupd, _):
        count_at(lookupd, credentials)
    assert set(got) == {"Bearer word" if is_verified else ""}


@pytest.mark.usefixtures("elsewhere", "public_authority")
def test_an_address_that_the_user_gave_gets_the_secret_over_https(certificates: Certificates) -> None:
    with https_nsqd(certificates) as (address, got):
        ask(address, "topics", credentials=SECRET)
    assert set(got) == {"Bearer word"}


@pytest.mark.usefixtures("elsewhere")
def test_a_server_that_got_no_secret_is_a_failure_with_the_remedy() -> None:
    with (
        server(wants_a_secret) as (nsqd, _),
        server(lambda head: producers(nsqd)) as (lookupd, _),
        pytest.raises(NoServerAnswered) as caught,
    ):
        counted(lookupd, SECRET)
    assert "401 Unauthorized" in str(caught.value)
    assert trust.WITHHELD in str(caught.value)
    assert "--secrets-to-named-nodes" in trust.WITHHELD
    told = explained(caught.value)
    assert isinstance(told, PermissionRefused)
    assert str(told) == f"{nsqd}: got response 401 Unauthorized: {trust.WITHHELD}"
