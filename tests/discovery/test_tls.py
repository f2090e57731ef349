"""The files for TLS and the secret towards nsqlookupd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock

from nsqtw.discovery.addresses import LookupdAddress
from nsqtw.discovery.peers import LookupdConnector
from nsqtw.discovery.tls import check_lookupd
from nsqtw.errors import OptionError
from nsqtw.options.broker import Options
from tests.certificates import Certificates


def test_nothing_is_asked_for_by_default() -> None:
    assert check_lookupd(Options()) == []


def test_good_files_are_taken(certificates: Certificates, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("  s3cret \n")
    secret.chmod(0o600)
    options = Options(
        lookupd_tls=True,
        lookupd_tls_cert=certificates.client.certificate,
        lookupd_tls_key=certificates.client.key,
        lookupd_tls_root_ca_file=certificates.authority.certificate,
        lookupd_secret_file=str(secret),
    )
    assert check_lookupd(options) == []


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"lookupd_tls_cert": "{client}"}, "--lookupd-tls-key must be set, too: --lookupd-tls-cert needs"),
        (
            {"lookupd_tls_cert": "{client}", "lookupd_tls_key": "{other_key}"},
            "--lookupd-tls-key is not the key of",
        ),
        ({"lookupd_tls_root_ca_file": "nowhere"}, "open nowhere: no such file or directory"),
        ({"lookupd_tls_root_ca_file": "{other_key}"}, "failed to append certificate to pool"),
    ],
)
def test_files_that_will_not_do_are_refused(given: dict[str, Any], refusal: str, certificates: Certificates) -> None:
    paths = {"client": certificates.client.certificate, "other_key": certificates.server.key}
    options = Options(lookupd_tls=True, **{name: value.format(**paths) for name, value in given.items()})
    with pytest.raises(OptionError, match=f"^failed to build lookupd TLS config - .*{refusal}"):
        check_lookupd(options)


def test_a_secret_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"two\nlines")
    with pytest.raises(OptionError, match=r"^--lookupd-secret-file cannot be used - "):
        check_lookupd(Options(lookupd_secret_file=str(tmp_path / "secret")))


def test_what_has_no_effect_and_what_the_network_can_read_is_said(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret")
    file.chmod(0o644)
    options = Options(lookupd_secret_file=str(file), lookupd_tls_cert="c", lookupd_tls_root_ca_file="r")
    assert check_lookupd(options) == [
        "--lookupd-tls-root-ca-file has no effect without --lookupd-tls",
        "--lookupd-tls-cert has no effect without --lookupd-tls",
        "--lookupd-secret-file without --lookupd-tls: whoever sees the network learns the secret",
        f"--lookupd-secret-file: every user of this machine can read {file}: chmod 600 {file}",
    ]


@pytest.mark.filterwarnings("ignore:Passing HostnameEndpoint a reactor")  # the reactor of a test, with Twisted 24
def test_a_certificate_that_is_gone_fails_the_connection_and_nothing_else() -> None:
    network = LookupdConnector(MemoryReactorClock(), Options(lookupd_tls=True, lookupd_tls_cert="gone"))
    failures: list[Any] = []
    network.connect(LookupdAddress("l", 1, "l"), Factory()).addErrback(failures.append)
    assert str(failures[0].value) == "open gone: no such file or directory"
