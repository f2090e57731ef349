"""
A broker with a replica store: what it does when it becomes the owner of its data set, and when it is not any more.

A broker begins as a standby. Its HTTP says so, and its TCP port refuses connections, as that of a broker that is down:
so clients and load balancers go to the owner. When it becomes the owner it opens its data path as after a kill, and
serves. It never becomes a standby again: it ends with the exit code REPLACED, and its service manager starts it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from nsqtw import nsqd_import
from nsqtw.daemon.operator_log import log
from nsqtw.daemon.process import CANNOT_START
from nsqtw.errors import BackendError, NotOwner, NsqtwError, ReplicaError
from nsqtw.nsqd.build import open_backend
from nsqtw.nsqd.nsqd_dat import METADATA_FILE
from nsqtw.options.addresses import join_host_port
from nsqtw.options.broker import Options
from nsqtw.plugins import find_replica_store
from nsqtw.replication.lease import Lease
from nsqtw.replication.ownership import Ownership
from nsqtw.replication.replica import Replica, ReplicaSettings
from nsqtw.replication.status import ReplicaStatus
from nsqtw.runtime.reactor import Reactor

REPLACED = 3
"""The exit code of a broker that is not the owner any more, and of one that was asked to release its data set."""

_log = Logger()


class ReplicatedBroker:
    """
    The replica store of one broker, by the option `replicate`. `serve` opens the data path of an owner and serves;
    `stop`, called once with an exit code, stops the process; `renewed` gets the end of the lease after each heartbeat.
    OptionError when the store cannot be used.
    """

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        directory: str,
        *,
        serve: Callable[[Ownership], None],
        renewed: Callable[[float], None],
        stop: Callable[[int], None],
    ) -> None:
        self._reactor = reactor
        self._serve = serve
        self._renewed = renewed
        self._stop = stop
        self._is_stopping = False
        self.ownership: Ownership | None = None
        """With it this broker is the owner."""
        factory, argument = find_replica_store(options.replicate)
        open_store = partial(factory.open, argument, options.replicate_timeout, log)
        open_store().close()  # what is wrong with the argument is said before anything else is done
        settings = ReplicaSettings(
            directory=directory,
            address=join_host_port(options.broadcast_address, options.broadcast_tcp_port),
            http_address=join_host_port(options.broadcast_address, options.broadcast_http_port),
            lease=options.replicate_lease,
            replace=options.replicate_from,
            names_file=METADATA_FILE,
            is_foreign=lambda: nsqd_import.is_due(directory),
            open_store=open_store,
            open_backend=lambda: open_backend(options, directory),
        )
        self.replica = Replica(reactor, settings, self, log)

    def start(self) -> None:
        """Begin as a standby."""
        self.replica.start()

    def begin_stop(self) -> None:
        """The broker stops: what the store says from now on is of no interest."""
        self._is_stopping = True

    def stop(self) -> Deferred[None]:
        """End the threads. Fires when they have ended."""
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.replica.stop)

    def reason(self) -> str:
        """Return why no client should come, for /readyz; "" in an owner with a lease."""
        lease, replica = self.replica.lease, self.replica
        if lease is None:
            progress = replica.progress
            error = f"; the last attempt failed - {progress.error}" if progress.error else ""
            return f"standby, behind by {progress.behind} transactions{error}"
        if lease.lost is not None:
            return "another broker owns the data set"
        if self.ownership is None:
            return "taking over"
        return "" if lease.left else "the replica store has not answered for a lease: another broker may be the owner"

    def status(self) -> ReplicaStatus:
        """Return the state of this broker."""
        return self.replica.status()

    def release(self) -> None:
        """Stop, and have a standby take over."""
        self.release_requested("of any address")

    # -- ReplicaEvents

    def became_owner(self, ownership: Ownership) -> None:
        """ReplicaEvents API"""
        if self._is_stopping:
            return
        self.ownership = ownership
        try:
            self._serve(ownership)
        except Exception as error:  # whatever it is, nobody is served
            if not isinstance(error, NsqtwError):
                _log.failure("REPLICA: the start as the owner failed")
            _log.critical("REPLICA: cannot serve as the owner - {error}", error=error)
            self._renewed(-inf)
            with suppress(BackendError):  # a standby may do better
                ownership.close(is_synced=False, is_released=True)
            self.ownership = None
            self._end(CANNOT_START)
            return
        self.renewed(ownership.lease)

    def renewed(self, lease: Lease) -> None:
        """ReplicaEvents API"""
        if self.ownership is not None:
            self._renewed(lease.ends)

    def release_requested(self, standby: str) -> None:
        """ReplicaEvents API"""
        if self.ownership is not None and not self._is_stopping:
            _log.info("REPLICA: releasing the data set for standby {standby}", standby=standby)
            self._end(REPLACED)

    def lost(self, why: NsqtwError) -> None:
        """ReplicaEvents API"""
        if not self._is_stopping:
            _log.error("REPLICA: stopping - {why}", why=why)
            self._renewed(-inf)
            is_replaced = isinstance(why, NotOwner) or (isinstance(why, ReplicaError) and self.ownership is not None)
            self._end(REPLACED if is_replaced else CANNOT_START)

    def _end(self, code: int) -> None:
        self._is_stopping = True
        self._stop(code)
