"""Whether the files that the TLS options name can be used (nsqd specification 4.3, steps 5 to 7)."""

from __future__ import annotations

from typing import Protocol

from nsqtw.errors import OptionError
from nsqtw.option_file import read_file


class TlsOptions(Protocol):
    """What the options of a daemon say about TLS."""

    tls_cert: str
    tls_key: str
    tls_root_ca_file: str
    tls_client_auth_policy: str
    tls_required: int
    tls_min_version: int


def check_certificates(options: TlsOptions) -> None:
    """OptionError, in nsqd's words, for files that cannot be used, and when TLS is required without any."""
    if options.tls_cert or options.tls_key:
        try:
            _check_pair(options.tls_cert, options.tls_key)
            _check_authorities(options.tls_root_ca_file)
        except OptionError as mistake:
            raise OptionError(f"failed to build TLS config - {mistake}") from mistake
    elif options.tls_required:
        raise OptionError(
            "cannot require TLS client connections without TLS key and cert: --tls-cert and --tls-key must be set"
        )
    try:
        _check_authorities(options.tls_root_ca_file)
    except OptionError as mistake:
        raise OptionError(f"failed to build client TLS config - {mistake}") from mistake


def _check_pair(certificate: str, key: str) -> None:
    for path, what in ((certificate, "certificate"), (key, "key")):
        if b"-----BEGIN" not in read_file(path):
            raise OptionError(f"tls: failed to find any PEM data in {what} input: {path}")
    # Only a broker with a certificate waits for OpenSSL.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without an answer OpenSSL would ask the terminal for the password of an encrypted key.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as failure:
        if getattr(failure, "reason", None) == "KEY_VALUES_MISMATCH":
            raise OptionError(f"tls: private key does not match public key: {key}, {certificate}") from failure
        raise OptionError(f"tls: {certificate} and {key} cannot be used: {failure}") from failure


def _check_authorities(path: str) -> None:
    if not path:
        return
    text = read_file(path).decode("ascii", "ignore")
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as failure:
        raise OptionError(f"failed to append certificate to pool: {path} must hold certificates (PEM)") from failure
