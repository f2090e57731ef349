"""
The one secret of an nsqlookupd: in IDENTIFY, and over HTTP as `Authorization: Bearer SECRET`.

It is the content of --peer-secret-file without the white space around it, and read again on SIGHUP.
"""

from __future__ import annotations

import hmac

from nsqtw.errors import OptionError
from nsqtw.net.http_answers import failure
from nsqtw.net.http_routing import Decided
from nsqtw.option_file import read_file
from nsqtw.rights import Applicant

MAX_SECRET_BYTES = 4096
_CHALLENGE = (b"WWW-Authenticate", b'Bearer realm="nsqlookupd"')
_NO_CREDENTIAL = failure(401, "CREDENTIAL_REQUIRED", _CHALLENGE)
_BAD_CREDENTIAL = failure(401, "CREDENTIAL_REFUSED", (_CHALLENGE[0], _CHALLENGE[1] + b', error="invalid_token"'))


class SecretDoor:
    """Lets requests in that show the secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def knock(self, applicant: Applicant | None, needs: str, topic: str, channel: str, decided: Decided) -> None:
        """Doorkeeper API"""
        if applicant is None:
            decided(_NO_CREDENTIAL)
        else:
            decided(None if hmac.compare_digest(applicant.secret, self.secret) else _BAD_CREDENTIAL)


def read_secret(path: str) -> bytes:
    """The secret in a file. OptionError when there is none, or it cannot be one."""
    try:
        secret = read_file(path).strip()
    except OptionError as mistake:
        raise OptionError(f"--peer-secret-file cannot be used - {mistake}") from mistake
    if not 0 < len(secret) <= MAX_SECRET_BYTES or not secret.isascii() or not secret.decode("ascii").isprintable():
        text = f"must hold a secret: 1 to {MAX_SECRET_BYTES} printable characters of ASCII on one line"
        raise OptionError(f"--peer-secret-file cannot be used - {path} {text}")
    return secret
