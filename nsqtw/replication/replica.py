"""
The threads of a broker with a replica store: first the standby, then the heartbeat of the owner.

Theory of operation. Calls of a store block, so none is made in the reactor thread. A broker starts as a standby, in a
thread of its own. After a claim that thread copies what is missing, while a second one renews the lease
(the heartbeat). Then the reactor thread is told, and the broker begins to serve; from then on messages and checkpoints
go to the store in the storage thread, with the connection of the claim. Each thread has its own connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from shutil import rmtree
from threading import Event, Thread
from time import monotonic
from typing import Any, Protocol

from attrs import frozen

from nsqtw.backends.files import Files
from nsqtw.core.checkpoint import Checkpoint
from nsqtw.core.sequences import BLOCK_SIZE, random_block
from nsqtw.errors import BackendError, NoDataSet, NotACopy, NotOwner, NsqtwError, ReplicaError, StoreLost
from nsqtw.interfaces import IBackend, OperatorLog
from nsqtw.replication.data_copy import DataCopy, rebuild_positions, saved_topics
from nsqtw.replication.lease import Lease
from nsqtw.replication.ownership import Ownership
from nsqtw.replication.seed import seed_data_path
from nsqtw.replication.set_aside import set_aside
from nsqtw.replication.standby import REMEDIES, Progress, Standby, check_history
from nsqtw.replication.state_file import CopyState, StateFile, new_state, read_state
from nsqtw.replication.status import OWNER, STANDBY, ReplicaStatus, StandbyStatus
from nsqtw.replication.store import DataSet, IReplicaStore, StandbyReport

HEARTBEAT_SECONDS = 1.0
LOCAL, STORE = "local", "store"
"""The values of --replicate-from."""


class Stopped(Exception):
    """The broker stops during a takeover."""


class InReactor(Protocol):
    """The reactor, as threads see it."""

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None: ...


@frozen(kw_only=True)
class ReplicaSettings:
    """What a broker needs to be a replica."""

    directory: str
    """The data path, which is locked."""
    address: str
    """Where clients reach this broker, HOST:PORT."""
    http_address: str
    """Where its HTTP is reached."""
    lease: float
    """Seconds that an owner may serve without the store."""
    replace: str
    """What is done when the data path is no copy of the data set: LOCAL or STORE replaces the other; else an error."""
    names_file: str
    """The file in the data path that names topics and channels for nsqd."""
    is_foreign: Callable[[], bool]
    """Returns whether the data path has messages of an nsqd, which were not taken over."""
    open_store: Callable[[], IReplicaStore]
    open_backend: Callable[[], IBackend]


class ReplicaEvents(Protocol):
    """What a broker is told, in the reactor thread."""

    def became_owner(self, ownership: Ownership) -> None:
        """The data set is claimed, and the data path has all of it."""

    def renewed(self, lease: Lease) -> None:
        """The owner has heard from the store."""

    def release_requested(self, standby: str) -> None:
        """The owner is asked to release the data set; called with each heartbeat until it does."""

    def lost(self, why: NsqtwError) -> None:
        """This broker is not the owner any more, or cannot be a standby. It has to stop."""


class Replica:
    """The threads of one broker. `events` are called in the reactor thread."""

    def __init__(self, reactor: InReactor, settings: ReplicaSettings, events: ReplicaEvents, log: OperatorLog) -> None:
        self._reactor = reactor
        self._settings = settings
        self._events = events
        self._log = log
        self._stopping = Event()
        self._threads: list[Thread] = []
        self._standby: Standby | None = None
        self._began = monotonic()
        self._replaced = ""
        """What was set aside because it may lack messages; it is removed when everything is copied."""
        self.lease: Lease | None = None
        """The lease of the owner; None in a standby."""
        self.data_set: DataSet | None = None
        """The data set as the store described it last."""
        self.standbys: Sequence[StandbyReport] = ()
        """The standbys as the store described them last, in an owner."""
        self.error = ""
        """Why the last heartbeat failed; "" if it did not."""

    @property
    def progress(self) -> Progress:
        """How far a standby is."""
        return Progress() if self._standby is None else self._standby.progress

    def status(self) -> ReplicaStatus:
        """Return the state of this broker."""
        standby, data_set, lease, now = self._standby, self.data_set, self.lease, monotonic()
        if data_set is None or lease is None:
            progress = self.progress
            return ReplicaStatus(
                role=STANDBY,
                data_set="" if data_set is None else data_set.name,
                identity="" if standby is None else standby.identity,
                epoch=progress.epoch,
                owner=progress.owner,
                lsn=0 if standby is None else standby.lsn + progress.behind,
                behind_transactions=progress.behind,
                behind_messages=progress.behind_messages,
                behind_bytes=progress.behind_bytes,
                behind_seconds=max(0.0, now - max(progress.copied_at, self._began)),
                error=progress.error,
            )
        return ReplicaStatus(
            role=OWNER,
            data_set=data_set.name,
            identity=data_set.owner,
            epoch=data_set.epoch,
            owner=data_set.address,
            lsn=data_set.lsn,
            lease_left=lease.left,
            error=self.error,
            standbys=tuple(
                StandbyStatus(
                    identity=report.identity,
                    address=report.address,
                    behind_transactions=max(0, data_set.lsn - report.lsn),
                    seconds_ago=report.seconds_ago,
                )
                for report in self.standbys
                if report.identity != data_set.owner
            ),
        )

    def start(self) -> None:
        """Begin as a standby."""
        self._run(self._follow, "nsqtw-standby")

    def stop(self) -> None:
        """End the threads, and wait for them: for at most the timeout of the store."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None], name: str) -> None:
        thread = Thread(target=self._tell_failure, args=(work,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _tell_failure(self, work: Callable[[], None]) -> None:
        try:
            work()
        except NsqtwError as error:
            self._tell(self._events.lost, error)
        except Exception as error:  # a store of a third party
            self._log("critical", "REPLICA: a thread failed")
            self._tell(self._events.lost, ReplicaError(f"{type(error).__name__}: {error}"))

    def _tell(self, event: Callable[..., object], *arguments: object) -> None:
        if not self._stopping.is_set():
            self._reactor.callFromThread(event, *arguments)

    # -- the standby

    def _follow(self) -> None:
        store = self._settings.open_store()
        try:
            copy = self._open_copy(store)
            if copy is None:
                return
            standby = self._standby = Standby(
                store,
                copy,
                address=self._settings.address,
                reported=self._settings.http_address,
                lease=self._settings.lease,
                log=self._log,
            )
            self._log("info", "REPLICA: standby of the data set {data_set}", data_set=copy.state.state.data_set)
            with suppress(ReplicaError):  # the next call says why
                for finding in store.health():
                    if not finding.is_good:
                        self._log("warn", "REPLICA: {check}: {text}", check=finding.name, text=finding.text)
            while standby.writer is None and not self._stopping.is_set():
                delay = standby.step(monotonic())
                if self._replaced and standby.writer is None and not standby.progress.behind and standby.progress.owner:
                    rmtree(self._replaced, ignore_errors=True)  # the store has all of it
                    self._replaced = ""
                if standby.writer is None and delay:
                    self._stopping.wait(delay)
            if standby.writer is None:
                _close_copy(copy)
                return
            self._take_over(store, standby, copy)
        finally:
            store.close()

    def _open_copy(self, store: IReplicaStore) -> DataCopy | None:
        """Return the data path as a copy of the data set; None when the broker stops. NsqtwError."""
        settings = self._settings
        if settings.is_foreign():
            raise NotACopy(
                f"{settings.directory} has messages of an nsqd: start once without --replicate, which takes them over, "
                "and then use 'nsqtw replicate init'"
            )
        try:
            data_set = self._wait_for_data_set(store)
            return None if data_set is None else self._trusted_copy(store, data_set)
        except (NotACopy, NoDataSet) as error:
            nothing_to_copy = settings.replace == STORE and isinstance(error, NoDataSet)
            if nothing_to_copy or settings.replace not in (LOCAL, STORE):
                raise
            self._log("warn", "REPLICA: --replicate-from={side}: {error}", side=settings.replace, error=error)
        if settings.replace == STORE:
            set_aside(settings.directory, Files(), self._log)
        else:
            state = seed_data_path(store, settings.directory, settings.open_backend, is_replaced=True)
            StateFile(settings.directory, state).close(is_synced=False)
        data_set = self._wait_for_data_set(store)
        return None if data_set is None else self._trusted_copy(store, data_set)

    def _trusted_copy(self, store: IReplicaStore, data_set: DataSet) -> DataCopy:
        """Return the data path as a copy; what is in a damaged one is set aside first. NotACopy, BackendError."""
        directory = self._settings.directory
        state = read_state(directory)
        if state is not None and state.is_trusted:
            copy = self._checked_copy(store, data_set, state)
            if not copy.is_damaged:
                return copy
            copy.close()
            copy.state.close(is_synced=False)
        if state is not None:
            check_history(store, state)  # what a store has lost may be nowhere else
            self._log("warn", "REPLICA: the data path may lack messages, so the data set is copied again")
            self._replaced = set_aside(directory, Files(), self._log)
        return self._checked_copy(store, data_set, None)

    def _checked_copy(self, store: IReplicaStore, data_set: DataSet, state: CopyState | None) -> DataCopy:
        """Return the data path as a copy of the data set. NotACopy, BackendError."""
        directory = self._settings.directory
        backend = self._settings.open_backend()
        try:
            if state is None and backend.topics():
                raise NotACopy(f"{directory} has messages and is no copy of the data set {data_set.name}: {REMEDIES}")
            copy = DataCopy(backend, StateFile(directory, state or new_state(data_set.identity)))
            if copy.is_damaged:
                copy.state.distrust()  # this opening has repaired it: the next one would find nothing
            check_history(store, copy.state.state)
        except BaseException:
            backend.close()
            raise
        return copy

    def _wait_for_data_set(self, store: IReplicaStore) -> DataSet | None:
        """Return the data set as soon as the store can be reached; None when the broker stops. NoDataSet."""
        error = ""
        while not self._stopping.is_set():
            try:
                data_set = store.data_set()
            except ReplicaError as failure:
                if str(failure) != error:
                    self._log("error", "REPLICA: {error}", error=failure)
                error = str(failure)
                self._stopping.wait(HEARTBEAT_SECONDS)
                continue
            if data_set is None:
                raise NoDataSet("the replica store has no such data set: 'nsqtw replicate init' creates it")
            self.data_set = data_set
            return data_set
        return None

    def _take_over(self, store: IReplicaStore, standby: Standby, copy: DataCopy) -> None:
        writer = standby.writer
        assert writer is not None, "claimed"
        lease = self.lease = Lease(self._settings.lease, monotonic)
        lease.renew(standby.claimed_at)
        lease.on_lost = lambda: self._tell(self._events.lost, lease.lost)
        self._run(lambda: self._renew(writer.epoch, writer.token, lease), "nsqtw-heartbeat")
        self._log("info", "REPLICA: owner of the data set, epoch {epoch}", epoch=writer.epoch)
        ownership = Ownership(writer, copy.state, lease, monotonic)
        if standby.was_owner:
            state = copy.state.state
            copy.state.claimed(
                epoch=writer.epoch, token=writer.token, lsn=copy.lsn, checkpoint_lsn=state.checkpoint_lsn
            )
        try:
            standby.copy_rest(self._stopping.is_set)
            self._copy_positions(store, standby, copy, ownership)
        except Stopped:
            _close_copy(copy)
            writer.release()
            writer.close()
            return
        copy.close()
        self._tell(self._events.became_owner, ownership)

    def _copy_positions(self, store: IReplicaStore, standby: Standby, copy: DataCopy, ownership: Ownership) -> None:
        """Let the data path have the positions of the data set, and record that it is the owner's. BackendError."""
        claimed = store.data_set()
        assert claimed is not None, "claimed"
        state = copy.state
        if copy.lacks(store.ends([topic for topic in copy.topics if topic not in standby.skipped])):
            state.distrust()
            raise ReplicaError("the data path lacks messages that it had: the next start copies the data set again")
        highest = copy.end // BLOCK_SIZE + 1 if copy.end else 0
        next_block = max(store.next_block() or random_block(), highest)
        ownership.start_blocks(next_block)
        saved = state.state.checkpoint_lsn
        is_current = standby.was_owner and saved > 0 and saved == claimed.checkpoint_lsn
        if not is_current:
            kept = store.kept(copy.topics)
            if standby.was_owner:
                for topic in saved_topics(self._settings.directory) - kept.keys():
                    copy.delete(topic)  # its deletion was saved in the store, and not here
            state.forget_checkpoint()
            rebuild_positions(
                self._settings.directory,
                self._until_stopped(store.checkpoints()),
                {} if standby.was_owner else kept,
                next_block,
                names_file=self._settings.names_file,
                is_clean=standby.took_over_clean,
            )
        if self._stopping.is_set():
            raise Stopped
        ownership.is_complete = is_current
        state.claimed(
            epoch=ownership.epoch,
            token=ownership.token,
            lsn=claimed.lsn,
            checkpoint_lsn=saved if is_current else 0,
        )

    def _until_stopped(self, checkpoints: Iterable[Checkpoint]) -> Iterator[Checkpoint]:
        for checkpoint in checkpoints:
            if self._stopping.is_set():
                raise Stopped
            yield checkpoint

    # -- the owner

    def _renew(self, epoch: int, token: str, lease: Lease) -> None:
        store = self._settings.open_store()
        try:
            while not self._stopping.is_set() and lease.lost is None:
                began = monotonic()
                try:
                    data_set = store.renew(epoch)
                    if data_set.token != token:  # the store has lost the claim, and gave the epoch to another one
                        raise NotOwner(f"the broker at {data_set.address} owns the data set {data_set.name}")
                    self.data_set = data_set
                    lease.renew(began)
                    self._tell(self._events.renewed, lease)
                    if data_set.requested_by:
                        self._tell(self._events.release_requested, data_set.requested_by)
                    self.standbys = store.standbys()
                    self.error = ""
                except (NotOwner, StoreLost, NoDataSet) as error:
                    lease.lose(error)
                    return
                except ReplicaError as error:
                    if str(error) != self.error:
                        self._log("error", "REPLICA: the lease cannot be renewed - {error}", error=error)
                    self.error = str(error)
                interval = min(HEARTBEAT_SECONDS, lease.seconds / 3)
                self._stopping.wait(max(0.0, interval - (monotonic() - began)))
        finally:
            store.close()


def _close_copy(copy: DataCopy) -> None:
    """A standby stops: everything it has is synced, so that the next start trusts it."""
    is_synced = False
    with suppress(BackendError):
        copy.sync()
        is_synced = True
    copy.close()
    copy.state.close(is_synced=is_synced)
