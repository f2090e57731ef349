"""Files that the TLS options name, before there is a broker."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nsqtw.certificates import check_certificates
from nsqtw.errors import OptionError
from nsqtw.options import Options


def refusal(**given: Any) -> str:
    with pytest.raises(OptionError) as refused:
        check_certificates(Options(**given))
    return str(refused.value)


def make_pair(directory: Path, name: str, *words: str) -> dict[str, Any]:
    """A certificate that signs itself, with its key, as options."""
    certificate, key = str(directory / f"{name}.crt"), str(directory / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=x"]
    subprocess.run([*command, "-out", certificate, "-keyout", key, *words], check=True, capture_output=True)
    return {"tls_cert": certificate, "tls_key": key}


def test_files_that_can_be_used(tmp_path: Path) -> None:
    check_certificates(Options())
    pair = make_pair(tmp_path, "a", "-nodes")
    check_certificates(Options(**pair, tls_required=2, tls_root_ca_file=pair["tls_cert"]))
    check_certificates(Options(tls_root_ca_file=pair["tls_cert"]))


@pytest.mark.parametrize("given", [{"tls_required": 2}, {"tls_required": 1}, {"tls_client_auth_policy": "typo"}])
def test_requiring_tls_needs_a_certificate(given: dict[str, Any]) -> None:
    expected = "cannot require TLS client connections without TLS key and cert: --tls-cert and --tls-key must be set"
    assert expected == refusal(**given)


def test_a_certificate_needs_its_key_and_both_must_be_there(tmp_path: Path) -> None:
    start = "failed to build TLS config - "
    assert refusal(tls_cert="/no/cert") == f"{start}open /no/cert: no such file or directory"
    assert refusal(tls_key="/no/key") == f"{start}open : no such file or directory"
    first, second = make_pair(tmp_path, "a", "-nodes"), make_pair(tmp_path, "b", "-nodes")
    assert refusal(tls_cert=first["tls_cert"]) == f"{start}open : no such file or directory"
    mixed = {"tls_cert": first["tls_cert"], "tls_key": second["tls_key"]}
    assert refusal(**mixed).startswith(f"{start}tls: private key does not match public key: ")
    locked = make_pair(tmp_path, "c", "-passout", "pass:secret")
    assert refusal(**locked).startswith(f"{start}tls: {tmp_path}/c.crt and {tmp_path}/c.key cannot be used: ")


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\xff nonsense")
    start = "failed to build TLS config - "
    found = refusal(tls_cert=str(nonsense), tls_key=str(nonsense))
    assert found == f"{start}tls: failed to find any PEM data in certificate input: {nonsense}"
    pair = make_pair(tmp_path, "a", "-nodes")
    pool = f"failed to append certificate to pool: {nonsense} must hold certificates (PEM)"
    assert refusal(tls_root_ca_file=str(nonsense)) == f"failed to build client TLS config - {pool}"
    assert refusal(tls_root_ca_file=str(nonsense), **pair) == f"{start}{pool}"
    gone = "open /no/ca: no such file or directory"
    assert refusal(tls_root_ca_file="/no/ca") == f"failed to build client TLS config - {gone}"
