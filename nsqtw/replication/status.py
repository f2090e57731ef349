"""The state of a broker with a replica store, as /v2/replica, /metrics and nsqadmin show it."""

from __future__ import annotations

from typing import Any

from attrs import asdict, field, frozen

OWNER, STANDBY = "owner", "standby"
"""The roles of a broker."""


SILENT_SECONDS = 5.0
"""A standby that has not reported for longer is taken for one that is down."""


@frozen(kw_only=True)
class StandbyStatus:
    """A standby, as the owner knows it from the store."""

    identity: str
    address: str
    """Where its HTTP is reached, HOST:PORT."""
    behind_transactions: int
    seconds_ago: float
    """The time since it last told the store."""

    @property
    def is_running(self) -> bool:
        """Whether it could take over now."""
        return self.seconds_ago <= SILENT_SECONDS


@frozen(kw_only=True)
class ReplicaStatus:
    """One broker. What a standby is behind is 0 in an owner, and the lease is 0 in a standby."""

    role: str
    data_set: str
    identity: str
    """The identity of this broker."""
    epoch: int
    owner: str
    """Where clients reach the owner, HOST:PORT."""
    lsn: int
    """The last transaction of the data set that is known here."""
    lease_left: float = 0.0
    """Seconds that an owner may serve without hearing from the store."""
    behind_transactions: int = 0
    behind_messages: int = 0
    behind_bytes: int = 0
    behind_seconds: float = 0.0
    """The time since the copy had all that there was."""
    error: str = ""
    """Why the last call of the store failed; "" if it did not."""
    standbys: tuple[StandbyStatus, ...] = field(factory=tuple)
    """The standbys of the last minute, in an owner."""

    @property
    def running_standbys(self) -> list[StandbyStatus]:
        """The standbys that could take over now."""
        return [standby for standby in self.standbys if standby.is_running]

    def document(self) -> dict[str, Any]:
        """Return it as the JSON document of /v2/replica."""
        return asdict(self)
