"""The run of one verb: options, output, cluster and questions."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import attrs

from nsqtw.cli.contexts import LOCAL_NSQD, NAME_VARIABLE, ClusterAccess, Contexts, read_contexts
from nsqtw.cli.failures import ExitCode, readable
from nsqtw.cli.output import TABLE, Output
from nsqtw.client.lookup import host_and_port
from nsqtw.errors import CommandError, OptionError
from nsqtw.printing import complain, is_stderr_terminal, is_terminal

if TYPE_CHECKING:
    from nsqtw.cluster.cluster import Cluster
    from nsqtw.cluster.model import Partial
    from nsqtw.runtime.reactor import Reactor

T = TypeVar("T")


@attrs.define
class Globals:
    """The options that every verb has. `is_yes` answers every question with yes."""

    output: str = TABLE
    context: str = ""
    nsqd_http_address: tuple[str, ...] = ()
    lookupd_http_address: tuple[str, ...] = ()
    secret_file: str = ""
    is_yes: bool = False
    is_debug: bool = False


class Session:
    """The run of one verb. Its function gets the session before its own arguments."""

    def __init__(self, options: Globals) -> None:
        self.options = options
        self.output = Output(options.output)
        self.exit_code = ExitCode.DONE
        """The exit code of the run when its verb returns a result. PARTIAL_FAILURE after a failure of some nodes."""
        self._contexts: Contexts | None = None
        self._reactor: Reactor | None = None

    @property
    def reactor(self) -> Reactor:
        """The reactor, for verbs that are coroutines."""
        assert self._reactor is not None
        return self._reactor

    @reactor.setter
    def reactor(self, reactor: Reactor) -> None:
        self._reactor = reactor

    @property
    def contexts(self) -> Contexts:
        """The contexts of the config file. OptionError."""
        if self._contexts is None:
            self._contexts = read_contexts(os.environ)
        return self._contexts

    @property
    def context_name(self) -> str:
        """The context that is in use: of --context, $NSQTW_CONTEXT or the file; "" for none."""
        return self.options.context or os.environ.get(NAME_VARIABLE, "") or self.contexts.current

    def access(self) -> ClusterAccess:
        """
        Return the addresses and credentials: those of the context, replaced by options; without any, the nsqd of this
        machine. OptionError, NotFound.
        """
        options, name = self.options, self.context_name
        access = self.contexts.named(name) if name else ClusterAccess()
        if options.nsqd_http_address or options.lookupd_http_address:
            access = attrs.evolve(
                access,
                nsqd_http_addresses=options.nsqd_http_address,
                lookupd_http_addresses=options.lookupd_http_address,
                nsqd_tcp_addresses=(),
            )
        if options.secret_file:
            access = attrs.evolve(access, secret_file=options.secret_file, secret_variable="")
        has_addresses = access.nsqd_http_addresses or access.lookupd_http_addresses or access.nsqd_tcp_addresses
        if not has_addresses:
            access = attrs.evolve(access, nsqd_http_addresses=(LOCAL_NSQD,))
        self.check_addresses(access)
        return access

    def usable_access(self) -> ClusterAccess:
        """Return the addresses and credentials, with a secret that can be read. OptionError, NotFound."""
        access, name = self.access(), self.context_name
        try:
            access.secret()
        except OptionError as error:
            if not name or self.options.secret_file:
                raise
            raise OptionError(f"context {name!r}: {error}; 'nsqtw context use NAME' chooses another") from error
        return access

    def check_addresses(self, access: ClusterAccess) -> None:
        """Check the form of all addresses. OptionError."""
        for address in (*access.nsqd_http_addresses, *access.lookupd_http_addresses, *access.nsqd_tcp_addresses):
            host_and_port(address.partition("://")[2].rstrip("/") if "://" in address else address)

    def cluster(self) -> AbstractAsyncContextManager[Cluster]:
        """Return the cluster, for the time of a context. OptionError."""
        return _cluster(self.usable_access(), self.reactor)

    def value_of(self, partial: Partial[T]) -> T:
        """Return a value of the cluster. Its warnings go to stderr, and are exit code PARTIAL_FAILURE."""
        for warning in partial.warnings:
            for line in warning.split("\n"):
                self.warn(readable(line))
            self.exit_code = ExitCode.PARTIAL_FAILURE
        return partial.value

    def say(self, text: str) -> None:
        """Write a line to stderr."""
        complain(text)

    def warn(self, text: str) -> None:
        """Write a warning to stderr."""
        self.say(f"nsqtw: warning: {text}")

    def confirm(self, question: str) -> None:
        """
        Return when the user wants it: by --yes, or by an answer on the terminal. OptionError when nobody can be asked,
        CommandError after a no.
        """
        if self.options.is_yes:
            return
        if not (is_terminal(sys.stdin) and is_stderr_terminal()):
            raise OptionError(f"{question} There is no terminal to ask on: repeat with --yes")
        # The handler of the reactor would wait for its next turn, and this for a line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            complain(question, end=" [y/N] ")
            answer = sys.stdin.readline()
        finally:
            signal.signal(signal.SIGINT, before)
        if answer.strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was done")


@asynccontextmanager
async def _cluster(access: ClusterAccess, reactor: Reactor) -> AsyncIterator[Cluster]:
    from nsqtw.cluster.cluster import Cluster  # takes time that verbs without a cluster do not need
    from nsqtw.cluster.credentials import ClusterCredentials
    from nsqtw.cluster.http import NSQD

    secret = access.secret()
    if not (access.nsqd_http_addresses or access.lookupd_http_addresses):
        raise OptionError("this needs HTTP addresses: --nsqd-http-address or --lookupd-http-address")
    cluster = Cluster(
        reactor,
        nsqds=access.nsqd_http_addresses if not access.lookupd_http_addresses else (),
        lookupds=access.lookupd_http_addresses,
        credentials=ClusterCredentials(
            nsqd_secret=secret,
            lookupd_secret=secret,
            root_ca_file=access.tls_ca_file,
            cert=access.tls_cert_file,
            key=access.tls_key_file,
            is_verification_skipped=access.tls_insecure,
            sends_secrets_to_named_nodes=access.secrets_to_named_nodes,
        ),
    )
    cluster.requests.trust_addresses(NSQD, access.nsqd_http_addresses)
    try:
        yield cluster
    finally:
        await cluster.close()
