"""Checks of the nodes of a cluster: reachable, ready, of one version, with the right clock and the right addresses."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urlsplit

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.doctor.local import CheckSubject, Finding, Level, check_certificate
from nsqtw.cli.failures import REFUSALS
from nsqtw.cli.health import reasons_text
from nsqtw.cli.stdlib_http import MAX_BYTES, HttpAnswer, failures_named, get, may_have_secret, tls_context_of
from nsqtw.client.lookup import host_and_port
from nsqtw.cluster.answers import document_in, node_in, nodes_in
from nsqtw.cluster.model import Node
from nsqtw.cluster.trust import WITHHELD
from nsqtw.errors import ConnectFailed, NsqtwError, OptionError, ServerFailed
from nsqtw.options.addresses import MAX_PORT
from nsqtw.options.texts import readable_duration

_SECONDS = 3.0
_WORKERS = 16
_SHOWN_BYTES = 500
_SMALL_BYTES = 1 << 20
"""Bytes of an answer that is no list."""
_SMALL_SKEW, _LARGE_SKEW = 2.0, 60.0
"""Seconds between two clocks: a warning, an error."""

V = TypeVar("V")
Checked = tuple[list[Finding], V | None]
"""Findings about a server, and what was learned from it; None without a usable answer."""


def check_cluster(access: ClusterAccess) -> Iterator[Finding]:
    """Check all nodes, at the same time. Whatever one of them answers is a finding about that one."""
    lookupds = _each("nsqlookupd", access.lookupd_http_addresses, lambda address: _check_lookupd(access, address))
    named: set[str] = set()
    for findings, found in lookupds:
        yield from findings
        named |= {node.http_address for node in found or ()}
    if not named and any(found is not None for _, found in lookupds):
        yield CheckSubject("nodes", "all").warning(
            "no nsqd is registered", "start nsqds with --lookupd-tcp-address of these nsqlookupds"
        )
    addresses = sorted(named) if access.lookupd_http_addresses else list(access.nsqd_http_addresses)
    checked = _each("nsqd", addresses, lambda address: _check_nsqd(access, address, is_named=address in named))
    versions: dict[str, list[str]] = {}
    for address, (findings, version) in zip(addresses, checked, strict=True):
        yield from findings
        if version is not None:
            versions.setdefault(version, []).append(address)
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
    text = f"{readable_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine"
    remedy = "synchronize the clocks of both machines (chrony, systemd-timesyncd): timedatectl set-ntp true"
    if size > _LARGE_SKEW:
        return subject.error(text, remedy)
    if size > _SMALL_SKEW:
        return subject.warning(text, remedy)
    return subject.ok("agrees with this machine")


def _each(program: str, addresses: Iterable[str], check: Callable[[str], Checked[V]]) -> list[Checked[V]]:
    """Check servers at the same time. An error that nothing has foreseen is a finding, too."""

    def checked(address: str) -> Checked[V]:
        try:
            return check(address)
        except NsqtwError:
            raise
        except Exception as error:
            text = f"cannot be checked: unforeseen {type(error).__name__}: {error}"
            return [CheckSubject(program, address).error(text, "please report it")], None

    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(checked, addresses))


def _check_lookupd(access: ClusterAccess, address: str) -> Checked[tuple[Node, ...]]:
    """Return the findings about an nsqlookupd, and the nsqds it names."""
    findings, answer = _check_answer(access, address, "nsqlookupd", "/nodes")
    if answer is None:
        return findings, None
    try:
        return findings, nodes_in(answer.document())
    except ServerFailed as error:
        return [*findings, _no_program("nsqlookupd", address, error)], None


def _check_nsqd(access: ClusterAccess, address: str, *, is_named: bool) -> Checked[str]:
    """Return the findings about an nsqd, and its version. `is_named`: an nsqlookupd names the address."""
    findings: list[Finding] = []
    if is_named:
        name = _check_name(address)
        findings.append(name)
        if name.level is Level.ERROR:
            return findings, None
    found, answer = _check_answer(access, address, "nsqd", "/info", _SMALL_BYTES)
    findings += found
    if answer is None:
        return findings, None
    try:
        node = node_in(answer.document(), ())
    except ServerFailed as error:
        return [*findings, _no_program("nsqd", address, error)], None
    if not node.version:
        return [*findings, _no_program("nsqd", address, "it has no version")], None
    findings += _check_readiness(access, address)
    findings += _check_tcp(address, node)
    ours = answer.headers.get("x-nsqtw-version", "")
    return findings, f"{node.version}{f' (nsqtw {ours})' if ours else ''}"


def _no_program(program: str, address: str, reason: object) -> Finding:
    """Return the finding about a server whose answer is not that of a program."""
    text = f"its answer is not that of an {program}: {reason}"
    return CheckSubject(program, address).error(text, "check the address")


def _check_answer(
    access: ClusterAccess, address: str, program: str, path: str, most_bytes: int = MAX_BYTES
) -> Checked[HttpAnswer]:
    subject = CheckSubject(program, address)
    try:
        answer = get(access, address, path, _SECONDS, most_bytes)
    except (ConnectFailed, OptionError) as error:
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
        findings.append(_check_date(address, answer.headers["date"]))
    if address.startswith("https://"):
        findings.append(_check_served_certificate(access, address))
    return findings, answer


def _check_date(address: str, text: str) -> Finding:
    """Check the clock of a node by the header field Date of its answer."""
    try:
        theirs = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return CheckSubject("clock", address).warning(
            f"its header field Date is none: {text[:_SHOWN_BYTES]!r}", "check what answers at this address"
        )
    # -0000, of a time in UTC that tells no zone, makes it naive.
    return check_clock(address, theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC), datetime.now(UTC))


def _check_readiness(access: ClusterAccess, address: str) -> list[Finding]:
    subject = CheckSubject("ready", address)
    remedy = "read the log of this nsqd; it refuses work until it is ready"
    for path in ("/readyz", "/ping"):
        try:
            answer = get(access, address, path, _SECONDS, _SMALL_BYTES)
        except ConnectFailed as error:
            return [subject.error(f"does not say: {error}", remedy)]
        if answer.status == 200:
            return [subject.ok("yes")]
        if answer.status != 404:
            return [subject.error(f"no: {_reasons(answer)}", remedy)]
    return []


def _reasons(answer: HttpAnswer) -> str:
    """Return why a node is not ready."""
    with suppress(ServerFailed):
        details = document_in(answer.body)
        if details.get("reasons"):
            return reasons_text(details)[:_SHOWN_BYTES]
    return " ".join(answer.body[:_SHOWN_BYTES].decode("utf-8", "replace").split())


def _check_name(address: str) -> Finding:
    """Check that the name under which a node is registered can be resolved here."""
    subject = CheckSubject("broadcast address", address)
    remedy = "set --broadcast-address of this nsqd to a name or address that consumers can resolve"
    try:
        with failures_named(address):
            host, port = host_and_port(address)
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (ConnectFailed, OptionError) as error:
        reason = str(error).removeprefix(f"{address}: ")
        return subject.error(f"cannot be resolved here: {reason}", remedy)
    return subject.ok("can be resolved")


def _check_tcp(address: str, node: Node) -> list[Finding]:
    """Check that consumers can connect to what the node says is its address."""
    if not node.tcp_port:
        return []
    target = node.tcp_address
    subject = CheckSubject("TCP port", target)
    remedy = "set --broadcast-address of this nsqd to what clients reach, or open the port in the firewall"
    if not 0 < node.tcp_port <= MAX_PORT:
        return [subject.error(f"nsqd {address} names it, and it is no port", "check that this is nsqd")]
    try:
        with failures_named(target):
            socket.create_connection((node.broadcast_address, node.tcp_port), _SECONDS).close()
    except ConnectFailed as error:
        reason = str(error).removeprefix(f"{target}: ")
        return [subject.error(f"nsqd {address} names it, and clients cannot connect: {reason}", remedy)]
    return [subject.ok("takes connections")]


def _check_served_certificate(access: ClusterAccess, address: str) -> Finding:
    """Check the certificate that a server shows. It was accepted before."""
    from cryptography import x509  # slow to import

    try:
        with failures_named(address):
            host, port = host_and_port(urlsplit(address).netloc)
            with (
                socket.create_connection((host, port), _SECONDS) as plain,
                tls_context_of(access).wrap_socket(plain, server_hostname=host) as connection,
            ):
                der = connection.getpeercert(binary_form=True) or b""
            expiry = x509.load_pem_x509_certificate(ssl.DER_cert_to_PEM_cert(der).encode()).not_valid_after_utc
    except ConnectFailed as error:
        return CheckSubject("certificate", address).error(f"cannot be read: {error}", "check what answers there")
    return check_certificate(address, expiry, datetime.now(UTC))
