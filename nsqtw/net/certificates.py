"""Checks of the files that the TLS options name."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from nsqtw.errors import OptionError
from nsqtw.options.files import read_file
from nsqtw.options.types import TLS_VERSIONS

SECURITY_LEVEL = 2
"""OpenSSL's, unless TLS older than 1.2 is allowed: 112 bits of security."""

_END = b"-----END CERTIFICATE-----"
_CERTIFICATES = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN X509 CERTIFICATE-----")
_TRUSTED = b"-----BEGIN TRUSTED CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"
_ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
_REASONS = {
    "ee key too small": "the key of the certificate is too small",
    "ca key too small": "the key of an authority in its chain is too small",
    "ee md too weak": "the signature of the certificate is too weak",
    "ca md too weak": "a signature in its chain is too weak",
}


class TlsOptions(Protocol):
    """The TLS options of a daemon."""

    tls_cert: str
    tls_key: str
    tls_root_ca_file: str
    tls_client_auth_policy: str
    tls_required: int
    tls_min_version: int


def is_weak_allowed(options: TlsOptions) -> bool:
    """True where old versions of TLS are allowed, with what is no longer thought secure."""
    return options.tls_min_version < TLS_VERSIONS["tls1.2"]


def check_certificates(options: TlsOptions) -> None:
    """OptionError, naming option and file, for files that cannot be used, and when TLS is required without any."""
    if options.tls_cert or options.tls_key:
        try:
            _check_pair(options.tls_cert, options.tls_key, "--tls-cert", "--tls-key")
            _check_authorities(options.tls_root_ca_file, "--tls-root-ca-file")
        except OptionError as error:
            raise OptionError(f"failed to build TLS config - {error}") from error
    elif options.tls_required:
        raise OptionError(
            "cannot require TLS client connections without TLS key and cert: --tls-cert and --tls-key must be set"
        )
    try:
        _check_authorities(options.tls_root_ca_file, "--tls-root-ca-file")
    except OptionError as error:
        raise OptionError(f"failed to build client TLS config - {error}") from error


def check_lookupd_certificates(certificate: str, key: str, authorities: str) -> None:
    """OptionError for files that cannot be used towards nsqlookupd; each may be "" for none."""
    try:
        if certificate or key:
            _check_pair(certificate, key, "--lookupd-tls-cert", "--lookupd-tls-key")
        _check_authorities(authorities, "--lookupd-tls-root-ca-file")
    except OptionError as error:
        raise OptionError(f"failed to build lookupd TLS config - {error}") from error


def certificates_in(path: str) -> list[bytes]:
    """The certificates of a file (PEM), one piece each. OptionError when it cannot be read."""
    return [piece + _END for piece in read_file(path).split(_END)[:-1]]


def expiry_of(path: str) -> datetime | None:
    """
    Return the first end of the time of the certificates in a file (PEM); None if it cannot be read. OptionError when
    the file cannot be.
    """
    from cryptography.x509 import load_pem_x509_certificates  # slow to import

    try:
        certificates = load_pem_x509_certificates(b"\n".join(certificates_in(path)))
    except ValueError:  # OpenSSL takes some files that this does not
        return None
    return min((certificate.not_valid_after_utc for certificate in certificates), default=None)


def in_words(reason: str) -> str:
    """Why OpenSSL refuses a certificate, in words; `reason` itself where it is not about its security level."""
    words = _REASONS.get(reason.lower())
    return f"{words} for OpenSSL's security level ({reason})" if words else reason


def _check_pair(certificate: str, key: str, certificate_flag: str, key_flag: str) -> None:
    if not certificate:
        raise OptionError(f"{certificate_flag} must be set, too: {key_flag} is the key of a certificate")
    if not key:
        raise OptionError(f"{key_flag} must be set, too: {certificate_flag} needs the key of the certificate")
    certificate_text, key_text = _read(certificate, certificate_flag), _read(key, key_flag)
    if not _has_certificate(certificate_text):
        if _KEY in certificate_text and _has_certificate(key_text):
            raise OptionError(
                f"{certificate_flag} and {key_flag} are swapped: {certificate} holds a private key, {key} a certificate"
            )
        raise OptionError(f"{certificate_flag} must hold a certificate (PEM): there is none in {certificate}")
    if _KEY not in key_text:
        raise OptionError(f"{key_flag} must hold a private key (PEM): there is none in {key}")
    if any(mark in key_text for mark in _ENCRYPTED):
        raise OptionError(
            f"{key_flag} must hold a key without a password: that in {key} is encrypted, and nobody can be asked for"
            f" its password (openssl pkey -in {key} -out FILE writes one without)"
        )
    # Only a broker with a certificate waits for OpenSSL.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without an answer OpenSSL would ask the terminal for the password of an encrypted key.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as failure:
        reason = str(getattr(failure, "reason", None) or failure).replace("_", " ").lower()
        if reason == "key values mismatch":
            raise OptionError(
                f"{key_flag} is not the key of {certificate_flag}: {key} does not match {certificate}"
            ) from failure
        raise OptionError(
            f"{certificate_flag} and {key_flag} cannot be used: {certificate}, {key}: {in_words(reason)}"
        ) from failure


def _read(path: str, flag: str) -> bytes:
    try:
        return read_file(path)
    except OptionError as error:
        raise OptionError(f"{flag}: {error}") from error


def _has_certificate(text: bytes) -> bool:
    return any(mark in text for mark in (*_CERTIFICATES, _TRUSTED))


def _check_authorities(path: str, flag: str) -> None:
    if not path:
        return
    text = _read(path, flag)
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as failure:
        raise OptionError(f"failed to append certificate to pool: {path} must hold certificates (PEM)") from failure
