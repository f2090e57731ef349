"""
Models of a cluster: nodes, topics, channels, clients, latencies and messages.

Counts are those of nsqd's /stats. An object of one node has its address in `node`; an object merged over nodes has
`MERGED` there and those of the single nodes in `nodes`. A field that only our nsqd has
is None when the node lacks it. Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import attrs

from nsqtw.names import dead_letter_name
from nsqtw.options.addresses import is_node_address, join_host_port
from nsqtw.replication.status import OWNER, STANDBY, ReplicaStatus

MERGED = "*"
"""The node of an object that is merged over nodes."""

T = TypeVar("T")

_OK = "OK"
"""The health of a node that can store messages."""

_ASKED_FOR = {"is_asked_for": True}
"""Of a field that /stats has under another name, and only when it is asked for."""


@attrs.frozen
class Partial(Generic[T]):
    """
    A result, and a warning for each step of which some servers failed. Errors of one step are lines of its text.
    `is_outcome_unknown`: one of the servers that failed may have made the change.
    """

    value: T
    warnings: tuple[str, ...] = ()
    is_outcome_unknown: bool = False


@attrs.frozen
class NodeTopic:
    """A topic of a node. A tombstone hides the node from consumers of the topic."""

    topic: str
    is_tombstoned: bool = False


@attrs.frozen(kw_only=True)
class Node:
    """An nsqd. `remote_addresses` are its connections to nsqlookupds as `nsqlookupd/nsqd`, none without nsqlookupd."""

    broadcast_address: str
    hostname: str
    tcp_port: int
    http_port: int
    version: str
    remote_address: str = ""
    remote_addresses: tuple[str, ...] = ()
    topology_zone: str = ""
    topology_region: str = ""
    topics: tuple[NodeTopic, ...] = ()
    is_outdated: bool = False
    """Another node has a newer version."""

    @property
    def has_address(self) -> bool:
        """Whether it can be connected to: it may have registered itself with anything."""
        return is_node_address(self.broadcast_address, self.tcp_port, self.http_port)

    @property
    def http_address(self) -> str:
        """The name of the node everywhere: the broadcast address and the HTTP port."""
        return join_host_port(self.broadcast_address, self.http_port)

    @property
    def tcp_address(self) -> str:
        """The address for consumers and producers."""
        return join_host_port(self.broadcast_address, self.tcp_port)


@attrs.frozen(kw_only=True)
class Percentile:
    """One quantile of the end-to-end latencies, nanoseconds. `value` is what a node reported, None after a merge."""

    quantile: float
    average: float
    minimum: float
    maximum: float
    count: int
    value: float | None = None


@attrs.frozen(kw_only=True)
class Latency:
    """End-to-end latencies of a topic or channel. nsqd measures them only when its options ask for quantiles."""

    count: int = 0
    percentiles: tuple[Percentile, ...] = ()
    topic: str = ""
    channel: str = ""
    node: str = ""


@attrs.frozen(kw_only=True)
class Retention:
    """What a topic keeps of finished messages. 0 is no limit. `earliest` is the first position that is kept."""

    time: float
    bytes: int
    earliest: int


@attrs.frozen(kw_only=True)
class ConsumerStats:
    """A consumer of a channel on one node."""

    node: str
    remote_address: str = ""
    version: str = ""
    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    connect_ts: int = 0
    """Unix time in seconds."""
    in_flight_count: int = 0
    ready_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    message_count: int = 0
    sample_rate: int = 0
    deflate: bool = False
    snappy: bool = False
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    node_topology_region: str = ""
    node_topology_zone: str = ""
    topology_region: str = ""
    topology_zone: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


@attrs.frozen(kw_only=True)
class ProducerStats:
    """A connection that has published, and how many messages to which topics."""

    client: ConsumerStats
    published: tuple[tuple[str, int], ...] = ()


@attrs.frozen(kw_only=True)
class LookupdState:
    """An nsqlookupd, as the last query of all nodes found it. `error` is empty when it answered."""

    address: str
    error: str
    node_count: int
    """The nodes that it named last."""


@attrs.frozen(kw_only=True)
class Counts:
    """
    Counts that topics and channels have. `depth` includes `backend_depth`. A field of the type int, or int | None, has
    the name of a number of /stats: it is read and merged without another declaration.
    """

    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    zone_local_msg_count: int = 0
    region_local_msg_count: int = 0
    global_msg_count: int = 0

    @property
    def memory_depth(self) -> int:
        """Messages that wait in memory."""
        return self.depth - self.backend_depth

    @property
    def delivery_msg_count(self) -> int:
        """Deliveries of which the topology of the consumer is known."""
        return self.zone_local_msg_count + self.region_local_msg_count + self.global_msg_count


@attrs.frozen(kw_only=True)
class ChannelStats(Counts):
    """A channel of one node, or merged over nodes."""

    node: str
    hostname: str = ""
    topic_name: str
    channel_name: str
    in_flight_count: int = 0
    deferred_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    nodes: tuple[ChannelStats, ...] = ()
    clients: tuple[ConsumerStats, ...] = ()
    is_paused: bool = False
    latency: Latency | None = None
    dropped_count: int | None = None
    dead_letter_count: int | None = None
    expired_count: int | None = None
    """Messages that expired; those that became dead letters are counted there, too."""
    high_depth: int | None = None
    normal_depth: int | None = None
    low_depth: int | None = None
    """Messages that were never delivered, by their priority; None without priorities."""
    oldest_message_age: float | None = None
    policy: Mapping[str, Any] | None = attrs.field(factory=dict)
    """The settings that are not at their default; None when the nodes of a merged channel differ."""

    @property
    def unfinished_count(self) -> int:
        """All messages of the channel: those that wait, and those in flight and deferred."""
        return self.depth + self.in_flight_count + self.deferred_count

    @property
    def letter_topic(self) -> str:
        """The dead-letter topic of the channel of one node."""
        return str((self.policy or {}).get("dead_letter_topic") or dead_letter_name(self.topic_name))


@attrs.frozen(kw_only=True)
class TopicStats(Counts):
    """A topic of one node, or merged over nodes."""

    node: str
    hostname: str = ""
    topic_name: str
    nodes: tuple[TopicStats, ...] = ()
    channels: tuple[ChannelStats, ...] = ()
    is_paused: bool = False
    latency: Latency | None = None
    message_bytes: int | None = None
    durability: str | None = None
    """os, fsync or memory. None when the node is no nsqtw, or the nodes of a merged topic differ."""
    retention: Retention | None = None
    """None also for a topic that keeps nothing of what is finished."""
    lost_count: int | None = None
    rejected_count: int | None = None
    deduplicated_count: int | None = None
    oldest_message_age: float | None = None
    own_deferred_count: int = attrs.field(default=0, metadata=_ASKED_FOR)
    """How many of `depth` are deferred: channels get them later."""
    policy: Mapping[str, Any] | None = attrs.field(factory=dict)
    """The settings that are not at their default; None when the nodes of a merged topic differ."""

    @property
    def unfinished_count(self) -> int:
        """All messages of the topic and of its channels."""
        return self.depth + sum(channel.unfinished_count for channel in self.channels)

    @property
    def own_ready_count(self) -> int:
        """How many of `depth` are not deferred."""
        return self.depth - self.own_deferred_count

    @property
    def total_depth(self) -> int:
        """Messages that wait in the topic and in all its channels."""
        return self.own_ready_count + sum(channel.depth for channel in self.channels)

    @property
    def in_flight_count(self) -> int:
        """Messages in flight to consumers of all channels."""
        return sum(channel.in_flight_count for channel in self.channels)

    @property
    def deferred_count(self) -> int:
        """Deferred messages of the topic and of all its channels."""
        return self.own_deferred_count + sum(channel.deferred_count for channel in self.channels)

    @property
    def client_count(self) -> int:
        """Consumers of all channels."""
        return sum(channel.client_count for channel in self.channels)


class CountNames(NamedTuple):
    """The names of counts, in the model and in /stats. They are summed over the nodes that have them."""

    always: tuple[str, ...]
    """Those that every nsqd has."""
    optional: tuple[str, ...]
    """Those that /stats may lack."""

    @classmethod
    def of(cls, stats: type[Counts]) -> CountNames:
        """Return the names of the counts of topics or channels."""
        fields = [field for field in attrs.fields(stats) if not field.metadata.get("is_asked_for")]
        always, optional = (
            tuple(field.name for field in fields if str(field.type) == kind) for kind in ("int", "int | None")
        )
        return cls(always, optional)


TOPIC_COUNTS = CountNames.of(TopicStats)
CHANNEL_COUNTS = CountNames.of(ChannelStats)


@attrs.frozen(kw_only=True)
class NodeStats:
    """
    A node with its topics. `health` is OK or the text of its error, `memory` the numbers of /stats by name.
    `nsqtw_version` is empty for another nsqd, which lacks what only ours can do.
    """

    node: Node
    topics: tuple[TopicStats, ...] = ()
    health: str = ""
    start_time: int = 0
    """Unix time in seconds."""
    memory: Mapping[str, int] = attrs.field(factory=dict)
    nsqtw_version: str = ""
    producers: tuple[ProducerStats, ...] = ()
    """Connections that have published, when clients were asked for."""
    disk_free: int | None = None
    """Bytes left on the file system of the data path."""
    disk_capacity: int | None = None
    """Bytes of that file system."""
    disk_stored: int | None = None
    """Bytes of the node's messages there."""
    replica: ReplicaStatus | None = None
    """None without a replica store."""

    @property
    def message_count(self) -> int:
        """Messages published to the node's topics."""
        return sum(topic.message_count for topic in self.topics)

    @property
    def error(self) -> str:
        """The error that the node reports, "" without one. A standby is well: it reports that it serves nobody."""
        return "" if self.role == STANDBY or self.health == _OK else self.health

    @property
    def role(self) -> str:
        """Owner or standby of a data set, "" without a replica store."""
        return "" if self.replica is None else self.replica.role

    @property
    def is_unprotected(self) -> bool:
        """Whether this is an owner that no standby could follow now."""
        return self.replica is not None and self.replica.role == OWNER and not self.replica.running_standbys

    @property
    def is_releasable(self) -> bool:
        """Whether this is an owner, and a standby could follow now."""
        return self.replica is not None and self.replica.role == OWNER and bool(self.replica.running_standbys)

    @property
    def part_count(self) -> int:
        """Topics and channels of the node."""
        return len(self.topics) + sum(len(topic.channels) for topic in self.topics)

    @property
    def client_count(self) -> int:
        """Consumers of the node, when they were asked for."""
        return sum(len(channel.clients) for topic in self.topics for channel in topic.channels)


@attrs.frozen
class ClusterStats:
    """All nodes that answered, and all topics merged over them, by name."""

    nodes: tuple[NodeStats, ...] = ()
    topics: Mapping[str, TopicStats] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ChannelCount:
    """The messages of a channel on one node."""

    node: str
    topic_name: str
    channel_name: str
    message_count: int


@attrs.frozen(kw_only=True)
class MessageHolder:
    """The consumer that holds a message in flight."""

    client_id: str
    hostname: str
    remote_address: str


@attrs.frozen(kw_only=True)
class Message:
    """A message of a channel or topic on one node. Times are Unix times in nanoseconds."""

    node: str
    id: str
    timestamp: int
    attempts: int
    body: bytes = attrs.field(repr=False)
    due: int | None = None
    """When a deferred message becomes ready."""
    deadline: int | None = None
    """When the delivery of a message in flight times out."""
    consumer: MessageHolder | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class NodeMessages:
    """
    Messages of one node. `has_more`: the node may have others, which the limits left out; `next` is the place after
    which they are, if the node tells it.
    """

    node: str
    messages: tuple[Message, ...]
    has_more: bool
    next: str = ""


@attrs.frozen(kw_only=True)
class RedriveProgress:
    """How far a redrive of a channel is on one node: counts of messages, and the state of /v2/channel/redrive."""

    node: str
    state: str
    total: int
    redriven: int
    others: int
    error: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.state == "running"


@attrs.frozen(kw_only=True)
class Cancelled:
    """A deferred message that one node cancelled. `is_released`: it was in `channels`; else no channel will get it."""

    node: str
    id: str
    is_released: bool
    channels: tuple[str, ...]


@attrs.frozen(kw_only=True)
class DrainState:
    """How far a node is with its drain. Counts are of messages; `staying` ones wait for no consumer and remain."""

    node: str
    is_draining: bool
    depth: int
    in_flight: int
    deferred: int
    staying: int
    seconds: float | None = None
    seconds_left: float | None = None


@attrs.frozen(kw_only=True)
class OptionChange:
    """A change of an option: the value before and after it, as in JSON."""

    option: str
    old: Any
    new: Any


@attrs.frozen(kw_only=True)
class ReloadReport:
    """
    What a reload of one node did: options that were `changed`, those that need a `restart`, kinds of `files` that were
    read again, and reasons of those that `failed`.
    """

    node: str
    changed: tuple[OptionChange, ...] = ()
    restart: tuple[OptionChange, ...] = ()
    files: tuple[str, ...] = ()
    failed: Mapping[str, str] = attrs.field(factory=dict)
    unchanged: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Seek:
    """
    A move of a channel on one node. `skipped`, `replayed` and `max_drops` are counts of messages: unfinished ones that
    are not delivered, finished ones that are delivered again, and what a bound drops afterwards, at most.
    """

    node: str
    position: int
    skipped: int
    replayed: int
    depth: int
    max_drops: int = 0


@attrs.frozen(kw_only=True)
class NodePolicy:
    """
    The policy of a topic or channel on one node. `settings` has the value and the source of each setting, `given`
    what was set; `unused` is a line about each source that contradicts another.
    """

    node: str
    settings: Mapping[str, Mapping[str, Any]]
    given: Mapping[str, Any]
    unused: tuple[str, ...]


@attrs.frozen(kw_only=True)
class PolicyAnswer:
    """The answer of a node to a change of a policy. `refusal`: one line, why it was not made; empty when it was."""

    node: str
    refusal: str = ""
    code: str = ""
    """The word of the refusal, such as INVALID_POLICY; empty without one."""
    is_outcome_unknown: bool = False
    drops: int | None = 0
    """Of a dry run: messages that the bounds of the channel would drop at once; None when that is not known."""


@attrs.frozen(kw_only=True)
class SettingValue:
    """A value of a setting of a policy as text, its source, and the nodes that have it."""

    name: str
    value: str
    source: str
    nodes: tuple[str, ...]
