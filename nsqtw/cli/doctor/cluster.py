"""Checks of the nodes of a cluster: reachable, ready, of one version, with the right clock and the right addresses."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.doctor.files import check_certificate
from nsqtw.cli.doctor.finding import CheckSubject, Finding
from nsqtw.cli.exit_codes import REFUSALS
from nsqtw.cli.health import reasons_text
from nsqtw.cli.stdlib_http import HttpAnswer, get, may_have_secret, tls_context_of
from nsqtw.client.lookup import host_and_port
from nsqtw.cluster.texts import duration_text
from nsqtw.cluster.trust import WITHHELD
from nsqtw.errors import ConnectFailed
from nsqtw.options.addresses import join_host_port

_SECONDS = 3.0
_WORKERS = 16
_SHOWN_BYTES = 500
_SMALL_SKEW, _LARGE_SKEW = 2.0, 60.0
"""Seconds between two clocks: a warning, an error."""


def check_cluster(access: ClusterAccess) -> Iterator[Finding]:
    """Check all nodes, at the same time."""
    lookupds = _each(access.lookupd_http_addresses, lambda address: _check_lookupd(access, address))
    producers: dict[str, dict[str, Any]] = {}
    for findings, found in lookupds:
        yield from findings
        producers |= found
    if access.lookupd_http_addresses and not producers and any(found is not None for _, found in lookupds):
        yield CheckSubject("nodes", "all").warning(
            "no nsqd is registered", "start nsqds with --lookupd-tcp-address of these nsqlookupds"
        )
    addresses = list(producers) if access.lookupd_http_addresses else list(access.nsqd_http_addresses)
    versions: dict[str, list[str]] = {}
    for findings, version in _each(addresses, lambda address: _check_nsqd(access, address, producers.get(address))):
        yield from findings
        if version[0]:
            versions.setdefault(version[0], []).append(version[1])
    yield from check_versions(versions)
    if access.nsqadmin_http_address:
        findings, _ = _check_answer(access, access.nsqadmin_http_address, "nsqadmin", "/ping")
        yield from findings


def check_versions(versions: dict[str, list[str]]) -> Iterator[Finding]:
    """Check that all nodes have one version. `versions` are the addresses of the nodes by version."""
    if len(versions) > 1:
        shown = "; ".join(f"{version}: {', '.join(nodes)}" for version, nodes in sorted(versions.items()))
        yield CheckSubject("versions", "nodes").warning(shown, "bring all nodes to one version")
    for version in versions if len(versions) == 1 else ():
        yield CheckSubject("versions", "nodes").ok(version)


def check_clock(what: str, theirs: datetime, now: datetime) -> Finding:
    """Check the clock of a node. HTTP has whole seconds."""
    subject = CheckSubject("clock", what)
    skew = (theirs - now).total_seconds()
    size = max(0.0, abs(skew) - 1.0)
    text = f"{duration_text(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine"
    remedy = "synchronize the clocks of both machines (chrony, systemd-timesyncd): timedatectl set-ntp true"
    if size > _LARGE_SKEW:
        return subject.error(text, remedy)
    if size > _SMALL_SKEW:
        return subject.warning(text, remedy)
    return subject.ok("agrees with this machine")


def _each(addresses: Iterable[str], check: Callable[[str], Any]) -> list[Any]:
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(check, addresses))


def _check_lookupd(access: ClusterAccess, address: str) -> tuple[list[Finding], dict[str, dict[str, Any]]]:
    """Return the findings about an nsqlookupd, and the nsqds it names, by HTTP address."""
    findings, answer = _check_answer(access, address, "nsqlookupd", "/nodes")
    producers: dict[str, dict[str, Any]] = {}
    for producer in (answer.document().get("producers") or ()) if answer is not None else ():
        try:
            producers[join_host_port(str(producer["broadcast_address"]), int(producer["http_port"]))] = producer
        except (KeyError, TypeError, ValueError):
            findings.append(
                CheckSubject("nsqlookupd", address).error(
                    "its answer is not that of an nsqlookupd", "check the address"
                )
            )
    return findings, producers


def _check_nsqd(
    access: ClusterAccess, address: str, producer: dict[str, Any] | None
) -> tuple[list[Finding], tuple[str, str]]:
    """Return the findings about an nsqd, and its version and address."""
    findings: list[Finding] = []
    if producer is not None:
        findings += _check_name(address)
    found, answer = _check_answer(access, address, "nsqd", "/info")
    findings += found
    if answer is None or not answer.document():
        return findings, ("", address)
    info = answer.document()
    findings += _check_readiness(access, address)
    findings += _check_tcp(address, info)
    ours = answer.headers.get("x-nsqtw-version", "")
    return findings, (f"{info.get('version')}{f' (nsqtw {ours})' if ours else ''}", address)


def _check_answer(
    access: ClusterAccess, address: str, program: str, path: str
) -> tuple[list[Finding], HttpAnswer | None]:
    subject = CheckSubject(program, address)
    try:
        answer = get(access, address, path, _SECONDS)
    except ConnectFailed as error:
        reason = str(error).removeprefix(f"{address}: ")
        remedy = f"start {program} there, correct the address in the context, or open the port in the firewall"
        return [subject.error(f"cannot be reached: {reason}", remedy)], None
    if answer.status in REFUSALS:
        remedy = "give a secret with this permission (--secret-file, or in the context), or an https:// address"
        if not may_have_secret(access, address):
            remedy = f"{WITHHELD}; or add this address to those of the context"
        return [subject.error(f"refuses the credentials, status {answer.status}", remedy)], None
    if answer.status != 200:
        return [subject.error(f"answers {path} with status {answer.status}", f"check that this is {program}")], None
    findings = [subject.ok("answers")]
    if "date" in answer.headers:
        findings.append(check_clock(address, parsedate_to_datetime(answer.headers["date"]), datetime.now(UTC)))
    if address.startswith("https://"):
        findings += _check_served_certificate(access, address)
    return findings, answer


def _check_readiness(access: ClusterAccess, address: str) -> list[Finding]:
    subject = CheckSubject("ready", address)
    for path in ("/readyz", "/ping"):
        answer = get(access, address, path, _SECONDS)
        if answer.status == 200:
            return [subject.ok("yes")]
        if answer.status != 404:
            return [
                subject.error(f"no: {_reasons(answer)}", "read the log of this nsqd; it refuses work until it is ready")
            ]
    return []


def _reasons(answer: HttpAnswer) -> str:
    """Return why a node is not ready."""
    with suppress(ValueError):
        details = json.loads(answer.body)
        if isinstance(details, dict) and details.get("reasons"):
            return reasons_text(details)
    return " ".join(answer.body[:_SHOWN_BYTES].decode("utf-8", "replace").split())


def _check_name(address: str) -> list[Finding]:
    """Check that the name under which a node is registered can be resolved here."""
    host, port = host_and_port(address)
    subject = CheckSubject("broadcast address", address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "set --broadcast-address of this nsqd to a name or address that consumers can resolve"
        return [subject.error(f"cannot be resolved here: {reason}", remedy)]
    return [subject.ok("can be resolved")]


def _check_tcp(address: str, info: dict[str, Any]) -> list[Finding]:
    """Check that consumers can connect to what the node says is its address."""
    host, port = str(info.get("broadcast_address")), info.get("tcp_port")
    if not isinstance(port, int) or not port:
        return []
    target = join_host_port(host, port)
    subject = CheckSubject("TCP port", target)
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "set --broadcast-address of this nsqd to what clients reach, or open the port in the firewall"
        return [subject.error(f"nsqd {address} names it, and clients cannot connect: {reason}", remedy)]
    return [subject.ok("takes connections")]


def _check_served_certificate(access: ClusterAccess, address: str) -> list[Finding]:
    """Check the certificate that a server shows. It was accepted before."""
    from cryptography import x509  # slow to import

    url = urlsplit(address)
    host, port = host_and_port(url.netloc)
    with (
        socket.create_connection((host, port), _SECONDS) as plain,
        tls_context_of(access).wrap_socket(plain, server_hostname=host) as connection,
    ):
        der = connection.getpeercert(binary_form=True) or b""
    expiry = x509.load_pem_x509_certificate(ssl.DER_cert_to_PEM_cert(der).encode()).not_valid_after_utc
    return [check_certificate(address, expiry, datetime.now(UTC))]
