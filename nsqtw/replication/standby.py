"""
A standby: it copies what the owner stores, and takes over when the owner's lease ends or is given up.

Theory of operation. `step` does one thing and returns when the next one is due; it reads no clock and has no thread.
An empty machine, a broker that was the owner before, and a standby that ran all the time take the same steps:

    check the history ─▶ copy segments until there are no more ─▶ wait, and copy ─▶ claim ─▶ copy the rest
      ─▶ copy the positions ─▶ serve

A standby claims only when it has copied all there is: of several the one that is nearest comes first. After the claim
nobody else writes, so the rest of the copy is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from secrets import token_hex
from typing import Any

from attrs import evolve, frozen

from nsqtw.errors import BackendError, NoDataSet, NotACopy
from nsqtw.interfaces import OperatorLog
from nsqtw.replication.data_copy import DataCopy
from nsqtw.replication.state_file import CopyState
from nsqtw.replication.store import DataSet, IReplicaStore, IReplicaWriter, OnDamage

POLL_SECONDS = 0.2
"""The time between two looks at a store that has nothing new."""
RETRY_SECONDS = 1.0
REPORT_SECONDS = 1.0
TRIM_SECONDS = 10.0
GRACE_SECONDS = 2.0
"""
A standby waits for so long after the store could not be reached: the owner could not renew its lease either, and does
so now.
"""
SKIP_SECONDS = 20.0
"""
A standby passes over what is damaged in the store when there has been no owner for so long. Until then one that has
copied it before may take over.
"""
COPY_BYTES = 4 * 1024 * 1024
"""Copied in one step, about."""


@frozen
class Progress:
    """How far a standby is, for /readyz and /metrics."""

    epoch: int = 0
    """The epoch of the data set."""
    owner: str = ""
    """The address of the owner; "" if it is not known."""
    behind: int = 0
    """Transactions that are not copied yet."""
    behind_messages: int = 0
    behind_bytes: int = 0
    """The messages in them, as of the last report."""
    copied_at: float = -inf
    """The time at which the copy had all that there was."""
    copied_bytes: int = 0
    """Bytes of all segments that were copied."""
    error: str = ""
    """Why the store or the data path failed the last time; "" if it did not."""


REMEDIES = (
    "--replicate-from=store sets this data path aside and copies the data set, "
    "--replicate-from=local replaces the data set by what this data path has"
)


def check_history(store: IReplicaStore, state: CopyState) -> DataSet:
    """
    Return the data set that a data path with this state is a copy of. NotACopy if the data path has something that the
    data set never had, or does not have any more: nobody can tell which of them is right. NoDataSet.
    """
    data_set = store.data_set()
    if data_set is None:
        raise NoDataSet("the replica store has no such data set: 'nsqtw replicate init' creates it")
    if state.data_set != data_set.identity:
        raise NotACopy(
            f"this data path is a copy of another data set, {state.data_set}, and the store has {data_set.identity} "
            f"under the name {data_set.name}: {REMEDIES}"
        )
    if not state.token or (state.token == data_set.token and state.lsn <= data_set.lsn):
        return data_set
    lost_from = data_set.lsn
    if state.token != data_set.token:
        claim, following = store.claim_of(state.epoch), store.claim_of(state.epoch + 1)
        if claim is None or claim.token != state.token:
            raise NotACopy(
                f"this data path has transactions up to {state.lsn} of a claim in epoch {state.epoch} that the replica "
                f"store, which is at {data_set.lsn} of epoch {data_set.epoch}, has lost: {REMEDIES}"
            )
        lost_from = data_set.lsn if following is None else following.began
    if state.lsn > lost_from:
        raise NotACopy(
            f"this data path has transactions up to {state.lsn} of epoch {state.epoch}, of which the replica store has "
            f"those up to {lost_from}: it has lost the others; {REMEDIES}"
        )
    return data_set


class Standby:
    """
    Copies a data set to `copy`, and claims it for the broker at `address` with a lease of `lease` seconds. `reported`:
    the address that other standbys and the owner are told.
    """

    def __init__(
        self,
        store: IReplicaStore,
        copy: DataCopy,
        *,
        address: str,
        reported: str,
        lease: float,
        log: OperatorLog,
    ) -> None:
        self._store = store
        self._copy = copy
        self._address = address
        self._reported = reported
        self._lease = lease
        self._log = log
        self._is_reached = False
        self._reached_since = inf
        """Since when each look at the data set succeeded."""
        self._seen: DataSet | None = None
        self._seen_since = inf
        """Since when the data set is unchanged."""
        self._next_report = self._next_trim = -inf
        self.progress = Progress()
        """Replaced as a whole; read from any thread."""
        self.writer: IReplicaWriter | None = None
        """The right to write, after a claim."""
        self.skipped: set[str] = set()
        """Topics with messages that cannot be read in the store."""
        self.claimed_at = -inf
        """The time before the claim."""
        self.was_owner = False
        """Whether this broker was the last owner, too: its data path has everything, also what has no copy."""
        self.took_over_clean = False
        """Whether the owner before had stored everything when it released the data set."""

    @property
    def lsn(self) -> int:
        """The LSN up to which this broker has a copy."""
        return self._copy.lsn

    @property
    def identity(self) -> str:
        """The identity of this broker."""
        return self._copy.state.state.broker

    def step(self, now: float) -> float:
        """
        Do the next step. Returns the seconds until the next one is due. After it `writer` tells whether the data set
        was claimed. ReplicaError if this broker cannot be a standby; other failures are tried again.
        """
        try:
            return self._step(now)
        except (NoDataSet, NotACopy):
            raise
        except BackendError as error:
            if str(error) != self.progress.error:
                self._log("error", "REPLICA: the copy fails - {error}", error=error)
            self._show(error=str(error))
            if not self._is_reached:
                self._reached_since = inf
            return RETRY_SECONDS

    def _step(self, now: float) -> float:
        self._is_reached = False
        data_set = check_history(self._store, self._copy.state.state)
        self._is_reached = True
        self._reached_since = min(self._reached_since, now)
        is_own = self._copy.is_last_owner(data_set)
        if data_set.owner == self.identity and not is_own:
            # Another data path has this identity: one is the copy of the other's files.
            self._copy.state.rename(token_hex(8))
        if now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            self._report(data_set)
        is_given = data_set.is_released or not data_set.owner or is_own
        is_silent = self._is_silent(data_set, now) and now >= self._reached_since + GRACE_SECONDS
        may_skip = is_given or (is_silent and now >= self._seen_since + data_set.lease + SKIP_SECONDS)
        if self._copy_some(data_set, self._on_damage if may_skip else None):
            return 0.0
        self._show(behind=data_set.lsn - self._copy.lsn, behind_messages=0, behind_bytes=0, copied_at=now)
        if now >= self._next_trim and not is_own:
            self._next_trim = now + TRIM_SECONDS
            self._trim()
        if is_given or is_silent:
            token = data_set.token if is_own else ""
            unchanged = data_set if is_silent else None
            self.claimed_at = now
            self.writer = self._store.claim(self.identity, self._address, self._lease, token=token, unchanged=unchanged)
            self.was_owner = is_own
            self.took_over_clean = data_set.is_released
        return POLL_SECONDS

    def _is_silent(self, data_set: DataSet, now: float) -> bool:
        """
        Return whether the owner has not renewed its lease in time: by the clock of the store, or, which a clock that
        goes back does not change, by that of this broker.
        """
        seen = self._seen
        if seen is None or (seen.token, seen.lsn, seen.renewed) != (data_set.token, data_set.lsn, data_set.renewed):
            self._seen, self._seen_since = data_set, now
        return data_set.lease_left <= 0 or now >= self._seen_since + data_set.lease + GRACE_SECONDS

    def _report(self, data_set: DataSet) -> None:
        """Tell the store, and the operator, how far this standby is."""
        self._show(epoch=data_set.epoch, owner=data_set.address, behind=data_set.lsn - self._copy.lsn)
        self._store.report(self.identity, self._reported, self._copy.lsn)
        messages, size = self._store.behind(self._copy.lsn)
        self._show(behind_messages=messages, behind_bytes=size)

    def _trim(self) -> None:
        self._copy.trim(self._store.kept(self._copy.topics), self._store.spans)

    def copy_rest(self, is_stopping: Callable[[], bool]) -> None:
        """Copy what the store got before the claim, and free what it has freed. BackendError."""
        while not is_stopping() and self._copy_some(
            check_history(self._store, self._copy.state.state), self._on_damage
        ):
            pass
        if not (self.was_owner or is_stopping()):
            self._trim()

    def _on_damage(self, topic: str, first: int, last: int, why: str) -> None:
        """The owner is gone: what cannot be read in the store is lost."""
        self.skipped.add(topic)
        text = "TOPIC({topic}): messages {first} to {last} in the replica store are lost: {why}"
        self._log("error", text, topic=topic, first=first, last=last, why=why)

    def _copy_some(self, data_set: DataSet, on_damage: OnDamage | None = None) -> bool:
        """Copy the next segments. Return whether there were any."""
        if data_set.lsn <= self._copy.lsn:
            if data_set.token != self._copy.state.state.token:
                self._copy.record(data_set, self._copy.lsn)  # a claim that has stored nothing yet
            return False
        stored = self._store.segments(self._copy.lsn, COPY_BYTES, on_damage)
        if not stored:  # checkpoints only
            self._copy.record(data_set, data_set.lsn)
            return False
        after = self._store.data_set()
        if after is None or after.token != data_set.token:  # it is not known in which epoch they were stored
            return True
        self._copy.apply(stored, data_set)
        copied = self.progress.copied_bytes + sum(segment.size for _, _, segment in stored)
        self._show(behind=after.lsn - self._copy.lsn, copied_bytes=copied)
        return True

    def _show(self, **changes: Any) -> None:
        self.progress = evolve(self.progress, **{"error": "", **changes})
