"""The credentials of nsqadmin for the cluster, before and after a reload."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nsqtw.admin.files import file_readers, read_credentials
from nsqtw.cluster.cluster import Cluster
from nsqtw.errors import NoServerAnswered
from nsqtw.options.admin import AdminOptions
from tests.admin.endpoint import Endpoint, endpoint
from tests.certificates import Certificates
from tests.cluster.reactor import run

STATS = json.dumps({"version": "1.3.0", "health": "OK", "topics": []}).encode()


def asked_twice(nsqd: Endpoint, before: dict[str, Any], after: dict[str, Any]) -> list[str | None]:
    """Ask an nsqd before a reload and after it. The Authorization field of each request, None without an answer."""

    async def test(reactor: Any) -> list[str | None]:
        cluster = Cluster(reactor, nsqds=[nsqd.address], credentials=read_credentials(AdminOptions(**before))[0])
        found = [await authorization_sent(cluster)]
        for reader in file_readers(cluster, None, None):
            use = reader.read(AdminOptions(nsqd_http_address=(nsqd.address,), **after))
            if use is not None:
                use()
        found.append(await authorization_sent(cluster))
        await cluster.close()
        return found

    async def authorization_sent(cluster: Cluster) -> str | None:
        with suppress(NoServerAnswered):
            await cluster.topics()
            return nsqd.requests[-1][1].get("authorization", "")
        return None

    nsqd.body = STATS
    return run(test)


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("word\n")
    return str(path)


def test_a_secret_that_is_withdrawn(certificates: Certificates, secret_file: str) -> None:
    skip = {"http_client_tls_insecure_skip_verify": True}
    with endpoint(certificates.server) as nsqd:
        assert asked_twice(nsqd, {**skip, "nsqd_secret_file": secret_file}, skip) == ["Bearer word", ""]
    with endpoint(certificates.server) as nsqd:
        assert asked_twice(nsqd, skip, {**skip, "nsqd_secret_file": secret_file}) == ["", "Bearer word"]


def test_certificates_that_are_verified_again(certificates: Certificates) -> None:
    """Also on connections that were made before."""
    with endpoint(certificates.server) as nsqd:
        assert asked_twice(nsqd, {"http_client_tls_insecure_skip_verify": True}, {}) == ["", None]


def test_an_authority_that_is_no_longer_trusted(certificates: Certificates) -> None:
    with endpoint(certificates.server) as nsqd:
        authority = {"http_client_tls_root_ca_file": certificates.authority.certificate}
        assert asked_twice(nsqd, authority, {}) == ["", None]
    with endpoint(certificates.server) as nsqd:
        assert asked_twice(nsqd, authority, authority) == ["", ""]


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_the_right_to_send_secrets_to_nodes_that_only_an_nsqlookupd_names(before: bool, after: bool) -> None:
    async def test(reactor: Any) -> bool:
        options = AdminOptions(lookupd_http_address=("127.0.0.1:1",), secrets_to_named_nodes=before)
        cluster = Cluster(reactor, lookupds=["127.0.0.1:1"], credentials=read_credentials(options)[0])
        options.secrets_to_named_nodes = after
        for reader in file_readers(cluster, None, None):
            use = reader.read(options)
            if use is not None:
                use()
        await cluster.close()
        return cluster.requests.credentials.sends_secrets_to_named_nodes

    assert run(test) == after


def test_a_reload_without_credentials_reads_no_files() -> None:
    async def test(reactor: Any) -> list[str]:
        options = AdminOptions(nsqd_http_address=("127.0.0.1:1",))
        cluster = Cluster(reactor, nsqds=["127.0.0.1:1"], credentials=read_credentials(options)[0])
        used = [reader.name for reader in file_readers(cluster, None, None) if reader.read(options) is not None]
        await cluster.close()
        return used

    assert run(test) == []
