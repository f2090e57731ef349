"""Requests to the nodes of a context, for threads and for verbs that must not import Twisted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.failures import readable
from nsqtw.client.blocking_http import ask
from nsqtw.client.http import Answer
from nsqtw.client.lookup import ACCEPT, base_url, host_and_port
from nsqtw.client.tls import context_of
from nsqtw.cluster.answers import document_in
from nsqtw.cluster.fields import JsonObject
from nsqtw.cluster.trust import Trust
from nsqtw.errors import ConnectFailed, LookupFailed, OptionError
from nsqtw.rights import authorization

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of an answer that are read."""
_NO_ADDRESS = "no address of a server"


class HttpAnswer(Answer):
    def document(self) -> JsonObject:
        """Return the JSON object of the body, an empty one for another status than 200. ServerFailed."""
        found = document_in(self.body) if self.status == 200 else {}
        data = found.get("data")
        return data if "status_code" in found and isinstance(data, dict) else found  # the envelope of old servers


def get(access: ClusterAccess, address: str, path: str, seconds: float, most_bytes: int = MAX_BYTES) -> HttpAnswer:
    """
    Request a path of a server, with the secret if the server may have it. The whole answer must arrive within
    `seconds`. ConnectFailed, OptionError.
    """
    with failures_named(address):
        url = base_url(address)
        host_and_port(urlsplit(url).netloc)
        headers = {"Accept": ACCEPT}
        if may_have_secret(access, address) and (secret := access.secret()):
            headers["Authorization"] = authorization(secret)
        context = tls_context_of(access) if url.startswith("https:") else None
        return HttpAnswer(*ask(url + path, seconds, headers=headers, context=context, most_bytes=most_bytes))


@contextmanager
def failures_named(address: str) -> Iterator[None]:
    """Raise ConnectFailed for whatever fails between this program and the server at an address."""
    try:
        yield
    except LookupFailed as error:
        raise ConnectFailed(address, f"{address}: {readable(str(error))}") from error
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ConnectFailed(address, f"{address}: {reason.lower()}") from error
    except (ValueError, OverflowError) as error:  # a host or a port that none can be
        raise ConnectFailed(address, f"{address}: {_NO_ADDRESS}") from error


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
    files = (access.tls_ca_file, access.tls_cert_file, access.tls_key_file)
    try:
        return context_of(*files, is_verification_skipped=access.tls_insecure)
    except OSError as error:
        raise OptionError(f"the TLS files of the context cannot be used: {error.strerror or error}") from error
