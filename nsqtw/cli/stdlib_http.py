"""HTTP and HTTPS requests with the standard library, for threads and for verbs that must not import Twisted."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.failures import NO_HTTP
from nsqtw.client.lookup import ACCEPT, base_url, host_and_port
from nsqtw.cluster.trust import Trust
from nsqtw.errors import ConnectFailed, OptionError
from nsqtw.rights import authorization

_MAX_BYTES = 64 * 1024 * 1024


@attrs.frozen
class HttpAnswer:
    """The answer to a request. The keys of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the JSON object of the body; an empty one for another body or status."""
        try:
            found = json.loads(self.body) if self.status == 200 else {}
        except ValueError:
            return {}
        if isinstance(found, dict) and "status_code" in found and isinstance(found.get("data"), dict):
            found = found["data"]  # the envelope of old servers
        return found if isinstance(found, dict) else {}


def get(access: ClusterAccess, address: str, path: str, seconds: float) -> HttpAnswer:
    """Request a path of a server, with the secret if the server may have it. ConnectFailed, OptionError."""
    url = urlsplit(base_url(address))
    host, port = host_and_port(url.netloc)
    headers = {"Accept": ACCEPT}
    if may_have_secret(access, address) and (secret := access.secret()):
        headers["Authorization"] = authorization(secret)
    if url.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=seconds, context=tls_context_of(access)
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return HttpAnswer(answer.status, fields, answer.read(_MAX_BYTES))
    except http.client.HTTPException as error:
        raise ConnectFailed(address, f"{address}: {NO_HTTP}") from error
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ConnectFailed(address, f"{address}: {reason.lower()}") from error
    finally:
        connection.close()


def may_have_secret(access: ClusterAccess, address: str) -> bool:
    """Return whether the secret may be sent to a server (`nsqtw.cluster.trust`)."""
    trust = Trust(
        addresses=access.http_addresses,
        has_own_authority=bool(access.tls_ca_file) and not access.tls_insecure,
        is_for_all=access.secrets_to_named_nodes,
    )
    return trust.covers(address, is_https=urlsplit(base_url(address)).scheme == "https")


def tls_context_of(access: ClusterAccess) -> ssl.SSLContext:
    """Return the settings of TLS of a client. OptionError when a file cannot be used."""
    try:
        context = ssl.create_default_context(cafile=access.tls_ca_file or None)
        if access.tls_cert_file:
            context.load_cert_chain(access.tls_cert_file, access.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"the TLS files of the context cannot be used: {reason}") from error
    if access.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
