"""`nsqtw doctor` and `nsqtw health`: each fault is made, found, and has a remedy."""

from __future__ import annotations

import resource
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from nsqtw.cli.contexts import ClusterAccess, Contexts
from nsqtw.cli.doctor import local
from nsqtw.cli.doctor.cluster import check_clock, check_versions
from nsqtw.cli.doctor.local import (
    ENOUGH_FILES,
    FEW_FILES,
    Finding,
    Level,
    check_certificate,
    check_config,
    check_data_path,
    check_file_system,
    check_limits,
    check_secret,
    check_space,
    check_tls_files,
    mount_of,
)
from nsqtw.testing import Broker, broker
from tests.cli.conftest import Nsqtw
from tests.cli.serving import serving

NOW = datetime(2026, 6, 1, tzinfo=UTC)
GB = 1 << 30
MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /tmp tmpfs rw 0 0
server:/x /mnt/net nfs4 rw 0 0
/dev/sdb /mnt/old ext4 ro,noatime 0 0
overlay /var overlay rw 0 0
/dev/sdc /mnt/a\\040b xfs rw 0 0
"""


def level(finding: Finding) -> Level:
    """Return the level. A problem has a remedy."""
    assert bool(finding.remedy) == (finding.level is not Level.OK)
    return finding.level


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (ENOUGH_FILES, ENOUGH_FILES, Level.OK),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, Level.OK),
        (FEW_FILES, ENOUGH_FILES, Level.WARNING),
        (256, 4096, Level.ERROR),
    ],
)
def test_the_limit_of_open_files(soft: int, hard: int, expected: Level) -> None:
    assert level(check_limits(soft, hard)) is expected


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [(100 * GB, 50 * GB, Level.OK), (100 * GB, 5 * GB, Level.WARNING), (100 * GB, GB // 20, Level.ERROR)],
)
def test_the_space_of_the_disk(total: int, free: int, expected: Level) -> None:
    assert level(check_space("/data", total, total - free, free)) is expected


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("/srv/nsq", "ext4", Level.OK),
        ("/tmp/nsq", "tmpfs", Level.ERROR),
        ("/mnt/net", "nfs4", Level.WARNING),
        ("/mnt/old/nsq", "ext4", Level.ERROR),
        ("/var/lib/nsq", "overlay", Level.WARNING),
        ("/mnt/a b/c", "xfs", Level.OK),
        ("/mnt/network", "ext4", Level.OK),
    ],
)
def test_the_file_system(path: str, kind: str, expected: Level) -> None:
    assert mount_of(path, MOUNTS)[0] == kind
    assert level(check_file_system(path, MOUNTS)) is expected


def test_a_data_path_that_is_not_there(tmp_path: Path) -> None:
    [finding] = check_data_path(str(tmp_path / "nowhere"))
    assert (level(finding), finding.text) == (Level.ERROR, "there is no such directory")


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(0.9, Level.OK), (-0.9, Level.OK), (5, Level.WARNING), (-5, Level.WARNING), (90, Level.ERROR)],
)
def test_the_clock_of_a_node(skew: float, expected: Level) -> None:
    finding = check_clock("node", NOW + timedelta(seconds=skew), NOW)
    assert level(finding) is expected


def test_nodes_of_two_versions() -> None:
    assert [level(finding) for finding in check_versions({"1.3.0": ["a", "b"]})] == [Level.OK]
    [finding] = check_versions({"1.3.0": ["a"], "1.2.1": ["b"]})
    assert (level(finding), finding.text) == (Level.WARNING, "1.2.1: b; 1.3.0: a")


def test_a_config_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert level(check_config(Contexts(path), "")) is Level.OK
    path.touch(0o600)
    assert level(check_config(Contexts(path), "")) is Level.OK
    path.chmod(0o644)
    assert level(check_config(Contexts(path), "")) is Level.WARNING


def test_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    access = ClusterAccess(secret_file=str(path))
    assert [level(finding) for finding in check_secret(access)] == [Level.ERROR]
    path.touch(0o600)
    assert [level(finding) for finding in check_secret(access)] == [Level.ERROR]
    path.write_text("open sesame")
    assert [level(finding) for finding in check_secret(access)] == [Level.OK]
    path.chmod(0o644)
    assert [level(finding) for finding in check_secret(access)] == [Level.WARNING]
    assert [level(finding) for finding in check_secret(ClusterAccess(secret_variable="NO_SUCH"))] == [Level.ERROR]
    assert not list(check_secret(ClusterAccess()))


@pytest.mark.parametrize(("days", "expected"), [(-1, Level.ERROR), (10, Level.WARNING), (100, Level.OK)])
def test_the_end_of_a_certificate(days: int, expected: Level) -> None:
    assert level(check_certificate("cert.pem", NOW + timedelta(days=days), NOW)) is expected


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of PEM files: an authority, a certificate and its key, and another key."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", not_after=NOW + timedelta(days=10))
    other = authority.issue_cert("127.0.0.1")
    paths = {name: str(directory / f"{name}.pem") for name in ("ca", "cert", "key", "other")}
    authority.cert_pem.write_to_path(paths["ca"])
    certificate.cert_chain_pems[0].write_to_path(paths["cert"])
    certificate.private_key_pem.write_to_path(paths["key"])
    other.private_key_pem.write_to_path(paths["other"])
    for path in paths.values():
        Path(path).chmod(0o600)
    return paths


def levels(access: ClusterAccess, now: datetime = NOW) -> list[Level]:
    return [level(finding) for finding in check_tls_files(access, now)]


def test_tls_files(tls: dict[str, str], tmp_path: Path) -> None:
    good = {"tls_ca_file": tls["ca"], "tls_cert_file": tls["cert"], "tls_key_file": tls["key"]}
    assert levels(ClusterAccess()) == []
    assert levels(ClusterAccess(**good)) == [Level.OK, Level.WARNING]  # the certificate ends in ten days
    assert levels(ClusterAccess(**good), NOW + timedelta(days=11)) == [Level.OK, Level.ERROR]
    assert levels(ClusterAccess(**{**good, "tls_key_file": tls["other"]})) == [Level.ERROR]
    assert levels(ClusterAccess(**{**good, "tls_ca_file": str(tmp_path / "nowhere")})) == [Level.ERROR]
    assert levels(ClusterAccess(tls_insecure=True)) == [Level.WARNING]
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    assert levels(ClusterAccess(tls_ca_file=str(broken))) == [Level.ERROR]


def test_a_certificate_whose_time_cannot_be_read(tls: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As for some that only OpenSSL takes."""
    monkeypatch.setattr(local, "expiry_of", lambda path: None)
    assert levels(ClusterAccess(tls_ca_file=tls["ca"])) == [Level.WARNING]


# -- with nodes


def findings(done: Any, check: str) -> list[tuple[str, str]]:
    """Return level and text of the findings of a check."""
    return [(row["level"], row["text"]) for row in done.json["findings"] if row["check"] == check]


def test_a_healthy_cluster_has_no_error(nsqtw: Nsqtw, nsqd: Broker, tmp_path: Path) -> None:
    done = nsqtw("--nsqd-http-address", nsqd.http_address, "doctor", "-o", "json")
    assert done.json["errors"] == done.code == 0
    for check in ("nsqd", "ready", "TCP port", "clock", "versions"):
        assert [found for found, _ in findings(done, check)] == ["ok"], check
    table = nsqtw("--nsqd-http-address", nsqd.http_address, "doctor", "--data-path", str(tmp_path))
    assert table.code == 0
    assert table.out.splitlines()[-1].startswith("0 errors, ")


def test_a_node_that_cannot_be_reached(nsqtw: Nsqtw) -> None:
    done = nsqtw("--nsqd-http-address", "127.0.0.1:1", "doctor", "-o", "json")
    assert done.code == 1
    assert findings(done, "nsqd") == [("error", "cannot be reached: connection refused")]
    text = nsqtw("--nsqd-http-address", "127.0.0.1:1", "doctor")
    assert text.code == 1
    assert "    start nsqd there, correct the address in the context, or open the port in the firewall" in text.out


def test_a_config_file_with_a_mistake(nsqtw: Nsqtw, own_config: Path) -> None:
    own_config.write_text("current = 1")
    done = nsqtw("doctor", "-o", "json")
    assert done.code == 1
    assert findings(done, "config file") == [
        ("error", f"config file {own_config}: current must be the name of a context")
    ]


def test_a_name_that_cannot_be_resolved_and_a_tcp_port_that_is_closed(nsqtw: Nsqtw) -> None:
    info = b'{"version": "1.3.0", "broadcast_address": "127.0.0.1", "tcp_port": 1, "http_port": 2}'
    with serving("/info", info, more={"/ping": (200, b"OK")}) as nsqd:
        done = nsqtw("--nsqd-http-address", nsqd, "doctor", "-o", "json")
    assert done.code == 1
    [(found, text)] = findings(done, "TCP port")
    assert found == "error"
    assert "names it, and clients cannot connect: connection refused" in text
    with serving(
        "/nodes", b'{"producers": [{"broadcast_address": "no-such-host.invalid", "http_port": 4151}]}'
    ) as lookupd:
        done = nsqtw("--lookupd-http-address", lookupd, "doctor", "-o", "json")
    assert done.code == 1
    [(found, text)] = findings(done, "broadcast address")
    assert found == "error"
    assert text.startswith("cannot be resolved here: ")


def test_an_nsqlookupd_without_nodes_and_one_that_is_none(nsqtw: Nsqtw) -> None:
    with serving("/nodes", b'{"producers": []}') as lookupd:
        done = nsqtw("--lookupd-http-address", lookupd, "doctor", "-o", "json")
    assert (done.code, findings(done, "nodes")) == (0, [("warning", "no nsqd is registered")])
    with serving("/", b"hello") as other:
        done = nsqtw("--lookupd-http-address", other, "doctor", "-o", "json")
    assert (done.code, findings(done, "nsqlookupd")) == (1, [("error", "answers /nodes with status 404")])


def test_a_clock_that_is_wrong(nsqtw: Nsqtw) -> None:
    with serving("/nodes", b'{"producers": []}', date="Mon, 01 Jun 2020 00:00:00 GMT") as lookupd:
        done = nsqtw("--lookupd-http-address", lookupd, "doctor", "-o", "json")
    assert done.code == 1
    [(found, text)] = findings(done, "clock")
    assert (found, text.endswith(" behind this machine")) == ("error", True)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b'{"ready": false}', '{"ready": false}'),
        (
            b'{"ready": false, "reasons": {"draining": "the drain has begun", "disk": "full"}}',
            "draining: the drain has begun; disk: full",
        ),
    ],
)
def test_a_node_that_is_not_ready(nsqtw: Nsqtw, answer: bytes, text: str) -> None:
    info = b'{"version": "1.3.0", "broadcast_address": "127.0.0.1", "tcp_port": 0, "http_port": 0}'
    with serving("/info", info, more={"/readyz": (503, answer)}) as nsqd:
        done = nsqtw("--nsqd-http-address", nsqd, "doctor", "-o", "json")
        assert (done.code, findings(done, "ready")) == (1, [("error", f"no: {text}")])
        health = nsqtw("health", nsqd, "-o", "json")
        assert (health.code, health.json["healthy"], health.json["status"]) == (1, False, 503)
        ping = nsqtw("health", nsqd, "--check", "ping")
        assert ping.code == 1


def test_credentials_that_are_refused(nsqtw: Nsqtw) -> None:
    with serving("/info", b"", more={"/info": (403, b'{"message": "FORBIDDEN"}')}) as nsqd:
        done = nsqtw("--nsqd-http-address", nsqd, "doctor", "-o", "json")
    assert (done.code, findings(done, "nsqd")) == (1, [("error", "refuses the credentials, status 403")])


def test_health(nsqtw: Nsqtw, nsqd: Broker) -> None:
    for check, text in (("ready", "ready"), ("live", "alive"), ("ping", "healthy")):
        done = nsqtw("health", nsqd.http_address, "--check", check)
        assert (done.code, done.out) == (0, f"{text}\n")
    assert nsqtw("health", NSQTW_HEALTH_ADDRESS=nsqd.http_address).out == "ready\n"
    assert nsqtw("health", "127.0.0.1:1").err == "nsqtw: 127.0.0.1:1: connection refused\n"
    assert nsqtw("health", "127.0.0.1:1").code == 4
    assert nsqtw("health", "nonsense").code == 2
    wrong = nsqtw("health", nsqd.tcp_address)
    assert (wrong.code, wrong.err) == (
        4,
        f"nsqtw: {nsqd.tcp_address}: the answer is no HTTP; is this the HTTP port?\n",
    )


def test_health_of_another_nsqd_is_its_ping(nsqtw: Nsqtw) -> None:
    with serving("/ping", b"OK") as other:
        done = nsqtw("health", other)
    assert (done.code, done.out) == (0, "ready\n")


def test_health_over_tls(nsqtw: Nsqtw, tls: dict[str, str], tmp_path: Path) -> None:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    ca, pem = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority.cert_pem.write_to_path(str(ca))
    server.private_key_and_cert_chain_pem.write_to_path(str(pem))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with broker(f"--tls-cert={pem}", f"--tls-key={pem}", f"--https-address=127.0.0.1:{port}"):
        address = f"https://127.0.0.1:{port}"
        assert nsqtw("health", address, "--root-ca-file", str(ca)).code == 0
        assert nsqtw("health", address).code == 4
        words = ["context", "add", "tls", "--nsqd-http-address", address, "--tls-ca-file", str(ca)]
        assert nsqtw(*words).code == 0
        done = nsqtw("doctor", "-o", "json")
        assert done.code == 0, done.out
        assert ("ok", address) in [
            (row["level"], row["what"]) for row in done.json["findings"] if row["check"] == "certificate"
        ]
        assert nsqtw("topic", "create", "over-tls").code == 0
        assert nsqtw("pub", "over-tls", "x").code == 0
        assert nsqtw("tail", "over-tls", "c", "-n", "1").out == "x\n"
