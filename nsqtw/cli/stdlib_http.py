"""HTTP and HTTPS requests with the standard library, for threads and for verbs that must not import Twisted."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import attrs

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.failures import NO_HTTP
from nsqtw.client.lookup import ACCEPT, base_url, host_and_port
from nsqtw.cluster.answers import document_in
from nsqtw.cluster.fields import JsonObject
from nsqtw.cluster.trust import Trust
from nsqtw.errors import ConnectFailed, OptionError
from nsqtw.rights import authorization

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of an answer that are read."""
_NO_ADDRESS = "no address of a server"


@attrs.frozen
class HttpAnswer:
    """The answer to a request. The keys of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> JsonObject:
        """Return the JSON object of the body, an empty one for another status than 200. ServerFailed."""
        found = document_in(self.body) if self.status == 200 else {}
        data = found.get("data")
        return data if "status_code" in found and isinstance(data, dict) else found  # the envelope of old servers


def get(access: ClusterAccess, address: str, path: str, seconds: float, most_bytes: int = MAX_BYTES) -> HttpAnswer:
    """
    Request a path of a server, with the secret if the server may have it. Connecting and each wait for bytes may take
    `seconds`, all of the answer twice as long. ConnectFailed, OptionError.
    """
    with failures_named(address):
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
            connection.connect()
            with _cut_off_after(connection.sock, 2 * seconds):
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                fields = {name.lower(): value for name, value in answer.getheaders()}
                return HttpAnswer(answer.status, fields, answer.read(most_bytes))
        finally:
            connection.close()


@contextmanager
def failures_named(address: str) -> Iterator[None]:
    """Raise ConnectFailed for whatever fails between this program and the server at an address."""
    try:
        yield
    except http.client.InvalidURL as error:
        raise ConnectFailed(address, f"{address}: {_NO_ADDRESS}") from error
    except http.client.HTTPException as error:
        raise ConnectFailed(address, f"{address}: {NO_HTTP}") from error
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ConnectFailed(address, f"{address}: {reason.lower()}") from error
    except (ValueError, OverflowError) as error:  # a host or a port that none can be
        raise ConnectFailed(address, f"{address}: {_NO_ADDRESS}") from error


@contextmanager
def _cut_off_after(connected: socket.socket, seconds: float) -> Iterator[None]:
    """End a connection after so many seconds, which is TimeoutError: a server may send single bytes without end."""
    is_late = threading.Event()

    def cut_off() -> None:
        is_late.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (http.client.HTTPException, OSError):
        if not is_late.is_set():
            raise
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError("timed out")


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
