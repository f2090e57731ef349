"""
Authorities that OpenSSL's security level refuses.

OpenSSL loads them without a word, and then refuses every certificate that one of them has signed: each client would see
its handshake fail, and the broker would have started as if all were well.
"""

from __future__ import annotations

from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

from nsqtw.errors import OptionError
from nsqtw.net.certificates import SECURITY_LEVEL, certificates_in

_MIN_RSA_BITS, _MIN_EC_BITS = 2048, 224
_WEAK_DIGESTS = ("md5", "sha1")


def check_strength(path: str, flag: str) -> None:
    """OptionError when the file of `flag` holds an authority that is too weak to be trusted by OpenSSL."""
    for weakness in _weaknesses(path):
        raise OptionError(f"{flag} cannot be used: {path}: {weakness}")


def _weaknesses(path: str) -> Iterator[str]:
    for number, pem in enumerate(certificates_in(path), 1):
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            key, digest = certificate.public_key(), certificate.signature_hash_algorithm
        except Exception:  # of a kind this library does not know: OpenSSL may
            continue
        who = f"the key of authority {number} ({certificate.subject.rfc4514_string()})"
        refused = f"and OpenSSL's security level {SECURITY_LEVEL} refuses it"
        if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey) and key.key_size < _MIN_RSA_BITS:
            yield f"{who} has {key.key_size} bits, {refused}; it needs {_MIN_RSA_BITS}"
        elif isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < _MIN_EC_BITS:
            yield f"{who} has {key.key_size} bits, {refused}; it needs {_MIN_EC_BITS}"
        elif digest is not None and digest.name in _WEAK_DIGESTS and certificate.issuer != certificate.subject:
            yield f"authority {number} ({certificate.subject.rfc4514_string()}) is signed with {digest.name}, {refused}"
