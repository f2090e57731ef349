"""Files that the TLS options name, before there is a broker."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nsqtw.discovery.tls import check_lookupd
from nsqtw.errors import OptionError
from nsqtw.net.certificates import check_certificates, expiry_of
from nsqtw.net.tls_authorities import check_strength
from nsqtw.net.tls_settings import make_context
from nsqtw.options.broker import Options


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


START = "failed to build TLS config - "


def test_a_certificate_needs_its_key_and_both_must_be_there(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "a", "-nodes")
    lonely = {"tls_cert": pair["tls_cert"]}
    assert refusal(**lonely) == f"{START}--tls-key must be set, too: --tls-cert needs the key of the certificate"
    lonely = {"tls_key": pair["tls_key"]}
    assert refusal(**lonely) == f"{START}--tls-cert must be set, too: --tls-key is the key of a certificate"
    gone = ": open /no/file: no such file or directory"
    assert refusal(tls_cert="/no/file", tls_key=pair["tls_key"]) == f"{START}--tls-cert{gone}"
    assert refusal(tls_cert=pair["tls_cert"], tls_key="/no/file") == f"{START}--tls-key{gone}"


def test_a_pair_that_is_none_is_said_in_words(tmp_path: Path) -> None:
    first, second = make_pair(tmp_path, "a", "-nodes"), make_pair(tmp_path, "b", "-nodes")
    certificate, key = first["tls_cert"], first["tls_key"]
    assert refusal(tls_cert=certificate, tls_key=second["tls_key"]) == (
        f"{START}--tls-key is not the key of --tls-cert: {second['tls_key']} does not match {certificate}"
    )
    assert refusal(tls_cert=key, tls_key=certificate) == (
        f"{START}--tls-cert and --tls-key are swapped: {key} holds a private key, {certificate} a certificate"
    )
    assert refusal(tls_cert=key, tls_key=key) == (
        f"{START}--tls-cert must hold a certificate (PEM): there is none in {key}"
    )
    assert refusal(tls_cert=certificate, tls_key=certificate) == (
        f"{START}--tls-key must hold a private key (PEM): there is none in {certificate}"
    )
    locked = make_pair(tmp_path, "c", "-passout", "pass:secret")
    assert refusal(**locked).startswith(
        f"{START}--tls-key must hold a key without a password: that in {locked['tls_key']} is encrypted"
    )


def test_both_may_be_in_one_file(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "a", "-nodes")
    both = tmp_path / "both.pem"
    both.write_text(Path(pair["tls_cert"]).read_text() + Path(pair["tls_key"]).read_text())
    check_certificates(Options(tls_cert=str(both), tls_key=str(both)))


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\xff nonsense")
    found = refusal(tls_cert=str(nonsense), tls_key=str(nonsense))
    assert found == f"{START}--tls-cert must hold a certificate (PEM): there is none in {nonsense}"
    pair = make_pair(tmp_path, "a", "-nodes")
    found = refusal(tls_cert=pair["tls_cert"], tls_key=str(nonsense))
    assert found == f"{START}--tls-key must hold a private key (PEM): there is none in {nonsense}"
    pool = f"failed to append certificate to pool: {nonsense} must hold certificates (PEM)"
    assert refusal(tls_root_ca_file=str(nonsense)) == f"failed to build client TLS config - {pool}"
    assert refusal(tls_root_ca_file=str(nonsense), **pair) == f"{START}{pool}"
    gone = "--tls-root-ca-file: open /no/ca: no such file or directory"
    assert refusal(tls_root_ca_file="/no/ca") == f"failed to build client TLS config - {gone}"


# -- what OpenSSL's security level refuses


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def sign_itself(directory: Path, name: str, *key: str) -> Path:
    """An authority."""
    file = directory / f"{name}.crt"
    subject = ["-subj", f"/CN={name}", "-keyout", str(directory / f"{name}.key"), "-out", str(file)]
    openssl("req", "-x509", "-newkey", *key, "-nodes", *subject)
    return file


def sign(directory: Path, authority: str, name: str, *key: str, digest: str = "-sha256") -> dict[str, Any]:
    """A certificate that an authority has signed, as options."""
    files = {part: str(directory / f"{name}.{part}") for part in ("crt", "key", "csr")}
    openssl("req", "-newkey", *key, "-nodes", "-subj", f"/CN={name}", "-keyout", files["key"], "-out", files["csr"])
    by = ["-CA", f"{directory}/{authority}.crt", "-CAkey", f"{directory}/{authority}.key"]
    openssl("x509", "-req", digest, *by, "-CAcreateserial", "-in", files["csr"], "-out", files["crt"])
    return {"tls_cert": files["crt"], "tls_key": files["key"]}


def context_refusal(**given: Any) -> str:
    with pytest.raises(OptionError) as refused:
        make_context(Options(**given))
    return str(refused.value)


EC = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
VERIFY = "require-verify"


def test_an_authority_whose_key_is_too_small_is_refused_at_the_start(tmp_path: Path) -> None:
    """Every client whose certificate it has signed would be refused, and the broker's own may be one of them."""
    weak = sign_itself(tmp_path, "weak", "rsa:1024")
    sign_itself(tmp_path, "strong", *EC)
    pair = sign(tmp_path, "strong", "server", *EC)
    said = context_refusal(**pair, tls_root_ca_file=str(weak), tls_client_auth_policy=VERIFY)
    assert said == (
        f"--tls-root-ca-file cannot be used: {weak}: the key of authority 1 (CN=weak) has 1024 bits, and OpenSSL's"
        " security level 2 refuses it; it needs 2048"
    )
    # Where nobody is verified with it, and where old TLS is allowed, it is in nobody's way.
    make_context(Options(**pair, tls_root_ca_file=str(weak), tls_client_auth_policy="require"))
    old = {"tls_min_version": 769, "tls_client_auth_policy": VERIFY}
    make_context(Options(**pair, tls_root_ca_file=str(weak), **old))
    with pytest.raises(OptionError, match=r"^--lookupd-tls-root-ca-file cannot be used: "):
        check_lookupd(Options(lookupd_tls=True, lookupd_tls_root_ca_file=str(weak)))


def test_a_weak_signature_among_the_authorities_is_refused(tmp_path: Path) -> None:
    root = sign_itself(tmp_path, "root", *EC)
    sign(tmp_path, "root", "middle", *EC, digest="-sha1")
    both = tmp_path / "both.pem"
    both.write_text(root.read_text() + (tmp_path / "middle.crt").read_text())
    with pytest.raises(
        OptionError, match=r"authority 2 \(CN=middle\) is signed with sha1, and OpenSSL's security level"
    ):
        check_strength(str(both), "--tls-root-ca-file")
    check_strength(str(root), "--tls-root-ca-file")


def test_a_weak_certificate_is_refused_at_the_start_in_words(tmp_path: Path) -> None:
    sign_itself(tmp_path, "strong", *EC)
    weak = sign_itself(tmp_path, "weak", "rsa:1024")
    small = sign(tmp_path, "strong", "small", "rsa:1024")
    assert context_refusal(**small).endswith(
        "the key of the certificate is too small for OpenSSL's security level (ee key too small)"
    )
    good = sign(tmp_path, "weak", "good", *EC)
    chain = tmp_path / "chain.crt"
    chain.write_text(Path(good["tls_cert"]).read_text() + weak.read_text())
    assert context_refusal(tls_cert=str(chain), tls_key=good["tls_key"]) == (
        f"{START}--tls-cert and --tls-key cannot be used: {chain}, {good['tls_key']}: the key of an authority in its"
        " chain is too small for OpenSSL's security level (ca key too small)"
    )


def test_what_only_a_handshake_finds_is_found_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL takes the chain of the broker's certificate from the authorities for clients, too."""
    monkeypatch.setattr("nsqtw.net.tls_settings.check_strength", lambda path, flag: None)
    weak = sign_itself(tmp_path, "weak", "rsa:1024")
    pair = sign(tmp_path, "weak", "server", *EC)
    said = context_refusal(**pair, tls_root_ca_file=str(weak), tls_client_auth_policy=VERIFY)
    assert said.endswith(
        "the key of an authority in its chain is too small for OpenSSL's security level (ca key too small)"
    )


def test_the_end_of_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert expiry_of(str(path)) is None
    path.write_text("")
    assert expiry_of(str(path)) is None
