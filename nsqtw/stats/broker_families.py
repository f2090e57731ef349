"""
Metrics of a broker as Prometheus gets them: one row each. `nsqtw.stats.metrics` has those of its topics and channels.

docs/reference/metrics.md is made from the tables (`nsqtw.tools.documentation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs

from nsqtw.backends.files import Files
from nsqtw.core.broker import Broker
from nsqtw.core.oldest import OldestMessages
from nsqtw.replication.status import OWNER, STANDBY, ReplicaStatus
from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.families import COUNTER, GAUGE, HISTOGRAM, Family
from nsqtw.stats.http_consumers import HttpConsumers


class ReplicaControl(Protocol):
    """The replica store of a broker, as its HTTP API and metrics see it."""

    def status(self) -> ReplicaStatus:
        """Return the state of the broker."""

    def release(self) -> None:
        """Stop in order, so that a standby takes over."""


@attrs.frozen(kw_only=True)
class BrokerView(DaemonView):
    """A broker, as its metrics see it."""

    broker: Broker
    now: Callable[[], float]
    """The clock of the broker."""
    data_path: str
    lookupds: Callable[[], Mapping[str, bool]] = dict
    """Whether each nsqlookupd knows this broker, by its address."""
    replica: ReplicaControl | None = None
    """The replica store; None without one."""
    oldest: OldestMessages = attrs.field(factory=OldestMessages)
    http_consumers: HttpConsumers = attrs.field(factory=HttpConsumers)


@attrs.define
class BrokerTotals:
    """A broker with what a walk over its topics and channels has counted."""

    view: BrokerView
    stored_bytes: int = 0
    omitted_topics: int = 0
    omitted_channels: int = 0

    @property
    def broker(self) -> Broker:
        return self.view.broker


def _free_bytes(totals: BrokerTotals) -> Mapping[str, int] | None:
    """Return the free bytes of the data path's file system; None if unknown."""
    space = _space(totals)
    return None if space is None else {totals.view.data_path: space[0]}


def _capacity_bytes(totals: BrokerTotals) -> Mapping[str, int] | None:
    """Return all bytes of the data path's file system; None if unknown."""
    space = _space(totals)
    return None if space is None else {totals.view.data_path: space[1]}


def _space(totals: BrokerTotals) -> tuple[int, int] | None:
    """Return the free bytes and all bytes of the data path's file system; None if unknown."""
    try:
        return Files().free_space(totals.view.data_path)
    except OSError:
        return None


def _of_replica(value: Callable[[ReplicaStatus], Any]) -> Callable[[BrokerTotals], Any]:
    """Return the value of a family that brokers with a replica store have."""
    return lambda totals: None if totals.view.replica is None else value(totals.view.replica.status())


BROKER_FAMILIES: tuple[Family[BrokerTotals], ...] = (
    Family("nsq_topics", GAUGE, "Number of topics.", lambda totals: len(totals.broker.topics)),
    Family(
        "nsq_channels", GAUGE, "Number of channels of all topics.", lambda totals: totals.broker.quotas.channel_count
    ),
    Family(
        "nsq_publish_ack_seconds",
        HISTOGRAM,
        "Time from the end of the event-loop turn that read a publish to its OK. "
        "Of the publishes of one topic in one group commit, that of the oldest.",
        lambda totals: totals.broker.publish_ack,
    ),
    Family(
        "nsq_fsync_seconds",
        HISTOGRAM,
        "Time of a commit to stable storage: the writes and fsyncs of one batch.",
        lambda totals: totals.broker.fsync,
    ),
    Family(
        "nsq_protocol_errors_total",
        COUNTER,
        "TCP commands that were refused, by the code of the error.",
        lambda totals: dict(totals.broker.protocol_errors),
        ("reason",),
    ),
    Family(
        "nsq_http_subscribers",
        GAUGE,
        "Consumers over HTTP, as --max-http-subscribers counts them, by kind: poll, events or websocket.",
        lambda totals: dict(totals.view.http_consumers.subscribers),
        ("kind",),
    ),
    Family(
        "nsq_http_delivered_total",
        COUNTER,
        "Messages that were sent to consumers over HTTP, by kind.",
        lambda totals: dict(totals.view.http_consumers.delivered),
        ("kind",),
    ),
    Family(
        "nsq_store_bytes",
        GAUGE,
        "Bytes of the messages kept, of all topics.",
        lambda totals: {totals.view.data_path: totals.stored_bytes},
        ("path",),
    ),
    Family(
        "nsq_store_free_bytes",
        GAUGE,
        "Bytes that may still be written to the file system of the data path.",
        _free_bytes,
        ("path",),
    ),
    Family(
        "nsq_store_capacity_bytes",
        GAUGE,
        "Bytes of the file system of the data path.",
        _capacity_bytes,
        ("path",),
    ),
    Family(
        "nsq_store_errors_total",
        COUNTER,
        "Failed attempts to store messages or positions.",
        lambda totals: {totals.view.data_path: totals.broker.health.error_count},
        ("path",),
    ),
    Family(
        "nsq_store_lost_messages_total",
        COUNTER,
        "Messages that damaged files have lost, of all topics.",
        lambda totals: {totals.view.data_path: totals.broker.damage.total().lost},
        ("path",),
    ),
    Family(
        "nsq_lookupd_up",
        GAUGE,
        "1 if this nsqd is registered with an nsqlookupd of its options, else 0.",
        lambda totals: {peer: int(is_up) for peer, is_up in totals.view.lookupds().items()},
        ("peer",),
    ),
    Family(
        "nsq_replica_role",
        GAUGE,
        "1 for the role of this broker: owner or standby of its data set. With --replicate.",
        _of_replica(lambda status: {(status.data_set, role): int(status.role == role) for role in (OWNER, STANDBY)}),
        ("data_set", "role"),
    ),
    Family(
        "nsq_replica_lease_seconds",
        GAUGE,
        "Time that an owner may serve without hearing from the replica store; 0 in a standby.",
        _of_replica(lambda status: status.lease_left),
    ),
    Family(
        "nsq_replica_epoch",
        GAUGE,
        "Number of claims of the data set: each takeover raises it.",
        _of_replica(lambda status: status.epoch),
    ),
    Family(
        "nsq_replica_behind_messages",
        GAUGE,
        "Messages that this standby has not copied yet.",
        _of_replica(lambda status: status.behind_messages),
    ),
    Family(
        "nsq_replica_behind_bytes",
        GAUGE,
        "Bytes of the messages that this standby has not copied yet.",
        _of_replica(lambda status: status.behind_bytes),
    ),
    Family(
        "nsq_replica_behind_seconds",
        GAUGE,
        "Time since this standby had a copy of everything; 0 in an owner.",
        _of_replica(lambda status: status.behind_seconds),
    ),
    Family(
        "nsq_replica_standbys",
        GAUGE,
        "Standbys that could take over now, as an owner sees them.",
        _of_replica(lambda status: len(status.running_standbys)),
    ),
    Family(
        "nsq_replica_store_up",
        GAUGE,
        "1 if the last call of the replica store succeeded, else 0.",
        _of_replica(lambda status: int(not status.error)),
    ),
    Family(
        "nsq_metrics_omitted",
        GAUGE,
        "Topics and channels without series in this scrape because of --metrics-max-series.",
        lambda totals: {"topic": totals.omitted_topics, "channel": totals.omitted_channels},
        ("kind",),
    ),
)
