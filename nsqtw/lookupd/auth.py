"""
The one secret of an nsqlookupd: in IDENTIFY, and over HTTP as `Authorization: Bearer SECRET`.

It is the content of --peer-secret-file without the white space around it, and read again on SIGHUP.
"""

from __future__ import annotations

import hmac

from nsqtw.http.bearer_auth import Decided
from nsqtw.http.responses import failure
from nsqtw.rights import Credentials

_CHALLENGE = (b"WWW-Authenticate", b'Bearer realm="nsqlookupd"')
_NO_CREDENTIAL = failure(401, "CREDENTIAL_REQUIRED", _CHALLENGE)
_BAD_CREDENTIAL = failure(401, "CREDENTIAL_REFUSED", (_CHALLENGE[0], _CHALLENGE[1] + b', error="invalid_token"'))


class SecretAuth:
    """Lets requests in that show the secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def authorize(
        self, credentials: Credentials | None, needs: str, topic: str, channel: str, decided: Decided
    ) -> None:
        """Doorkeeper API"""
        if credentials is None:
            decided(_NO_CREDENTIAL, "")
        else:
            decided(None if hmac.compare_digest(credentials.secret, self.secret) else _BAD_CREDENTIAL, "")
