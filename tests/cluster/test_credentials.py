"""Nsqds that want a secret, or take HTTPS only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqtw.auth.secret_hash import Recipe
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.credentials import ClusterCredentials, TlsPolicy
from nsqtw.errors import NoServerAnswered, OptionError
from nsqtw.rights import authorization
from tests.certificates import Certificates
from tests.cluster.reactor import run
from tests.process import NsqdProcess
from tests.wire import HOST

SECRET = "correct horse"
StartNsqd = Callable[..., NsqdProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartNsqd]:
    started: list[NsqdProcess] = []

    def start_one(*flags: str) -> NsqdProcess:
        process = NsqdProcess(tmp_path / str(len(started)), f"--broadcast-address={HOST}", *flags)
        started.append(process)
        process.start()
        return process

    yield start_one
    for process in started:
        process.close()
    for process in started:
        process.assert_no_traceback()


@pytest.fixture
def grants(tmp_path: Path) -> str:
    """A file of grants: the client with SECRET may do everything."""
    path = tmp_path / "grants.toml"
    path.write_text(
        f'[[client]]\nidentity = "nsqadmin"\nsecret = "{Recipe.fresh().line(SECRET.encode())}"\n'
        '[[client.grant]]\ntopic = ".*"\npermissions = ["publish", "subscribe", "admin"]\n'
    )
    path.chmod(0o600)
    return str(path)


def ask(credentials: ClusterCredentials, address: str, method: str, *arguments: Any) -> Any:
    async def test(reactor: Any) -> Any:
        cluster = Cluster(reactor, nsqds=[address], credentials=credentials)
        try:
            return await getattr(cluster, method)(*arguments)
        finally:
            await cluster.close()

    return run(test)


def test_the_secret_is_sent_when_the_nsqd_asks_for_it(start: StartNsqd, grants: str) -> None:
    nsqd = start(f"--auth=static:{grants}")
    address = f"{HOST}:{nsqd.http_port}"
    with pytest.raises(NoServerAnswered, match="401 Unauthorized"):
        ask(ClusterCredentials(), address, "topics")
    credentials = ClusterCredentials(nsqd_secret=SECRET)
    assert ask(credentials, address, "create", "t", "c").warnings == ()
    assert ask(credentials, address, "topics").value == ("t",)
    with pytest.raises(NoServerAnswered, match="401 Unauthorized"):
        ask(ClusterCredentials(nsqd_secret="wrong"), address, "topics")


def test_a_nsqd_that_takes_https_only(start: StartNsqd, certificates: Certificates) -> None:
    nsqd = start(*certificates.server.flags(), "--tls-required=true", f"--https-address={HOST}:0")
    address = f"{HOST}:{nsqd.http_port}"
    trusting = ClusterCredentials(root_ca_file=certificates.authority.certificate)
    assert ask(trusting, address, "create", "t").warnings == ()
    assert ask(trusting, address, "topics").value == ("t",)
    with pytest.raises(NoServerAnswered, match="certificate"):
        ask(ClusterCredentials(), address, "topics")
    assert ask(ClusterCredentials(is_verification_skipped=True), address, "topics").value == ("t",)


def test_a_client_certificate(start: StartNsqd, certificates: Certificates) -> None:
    nsqd = start(
        *certificates.server.flags(),
        f"--https-address={HOST}:0",
        "--tls-client-auth-policy=require-verify",
        f"--tls-root-ca-file={certificates.authority.certificate}",
        "--tls-required=true",
    )
    address = f"{HOST}:{nsqd.http_port}"
    with_pair = ClusterCredentials(
        root_ca_file=certificates.authority.certificate,
        cert=certificates.client.certificate,
        key=certificates.client.key,
    )
    assert ask(with_pair, address, "topics").value == ()
    with pytest.raises(NoServerAnswered):
        ask(ClusterCredentials(root_ca_file=certificates.authority.certificate), address, "topics")


def test_forms_of_a_secret() -> None:
    assert authorization("") == ""
    assert authorization("secret") == "Bearer secret"
    assert authorization("two words") == "Bearer two words"
    assert authorization("bearer secret") == "Bearer secret"
    assert authorization("basic user:word") == "Basic dXNlcjp3b3Jk"


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(ClusterCredentials(nsqd_secret=SECRET, lookupd_secret=SECRET))


def test_files_that_cannot_be_used(tmp_path: Path, certificates: Certificates) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    missing = str(tmp_path / "missing")
    with pytest.raises(OptionError, match=f"failed to read TLS root CA file {missing} - "):
        TlsPolicy(ClusterCredentials(root_ca_file=missing))
    with pytest.raises(OptionError, match=f"failed to AppendCertsFromPEM {empty}"):
        TlsPolicy(ClusterCredentials(root_ca_file=str(empty)))
    with pytest.raises(OptionError, match=f"failed to LoadX509KeyPair {empty}, {empty} - "):
        TlsPolicy(ClusterCredentials(cert=str(empty), key=str(empty)))
    with pytest.raises(OptionError, match="failed to LoadX509KeyPair"):
        TlsPolicy(ClusterCredentials(cert=certificates.client.certificate, key=certificates.stranger.key))
