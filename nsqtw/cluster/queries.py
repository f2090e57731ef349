"""
Queries of a cluster: its nodes, topics and channels, merged over all nodes.

With nsqlookupds they name the nodes; without, the nodes are the nsqds at given addresses. A server that gives no answer
becomes a warning; when none of a kind does, the query fails.

An nsqlookupd that gives no answer counts with the nodes that it named last. Whether one of them has a topic is asked of
the node itself, because topics may be created in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from nsqtw.client.lookup import host_and_port
from nsqtw.cluster.answers import (
    MAX_PARTS_TOGETHER,
    names_in,
    node_in,
    node_stats_in,
    nodes_in,
    topic_names_in,
    topics_in,
    with_outdated_marked,
)
from nsqtw.cluster.credentials import ClusterCredentials
from nsqtw.cluster.fields import JsonObject
from nsqtw.cluster.http import NSQD, NSQLOOKUPD, QUERIES, SAMPLES, ServerRequests, Timeouts, ask_all, split
from nsqtw.cluster.merge import merged_channel, merged_topic, node_order
from nsqtw.cluster.model import (
    ChannelCount,
    ChannelStats,
    ClusterStats,
    LookupdState,
    Node,
    NodeStats,
    NodeTopic,
    Partial,
    TopicStats,
)
from nsqtw.errors import NoServerAnswered, OptionError, ServerFailed, UnknownObject
from nsqtw.options.addresses import is_host, is_port
from nsqtw.runtime.reactor import Reactor

V = TypeVar("V")

_MANY_TOPICS = 500
_SHOWN_CHARACTERS = 100
_JSON = {"format": "json", "include_ages": "true", "include_deferred": "true", "include_disk": "true"}
_WITHOUT_CLIENTS = {**_JSON, "include_clients": "false"}
_TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
_NAMES_ONLY = {"format": "json", "include_clients": "false", "include_mem": "false"}


class Queries:
    """
    Queries of the nsqds at the HTTP addresses `nsqds`, or of those that the nsqlookupds at `lookupds` name. An address
    is host:port or a URL.
    """

    def __init__(
        self,
        reactor: Reactor,
        *,
        nsqds: Sequence[str] = (),
        lookupds: Sequence[str] = (),
        credentials: ClusterCredentials | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.requests = ServerRequests(reactor, credentials or ClusterCredentials(), timeouts or Timeouts())
        self._given: dict[str, str] = {}
        """The address that was given for a node, by the node's own."""
        self._lookupd_errors: dict[str, str] = {}
        """Why an nsqlookupd did not name the nodes, when it was asked last; empty when it did."""
        self._named: dict[str, tuple[Node, ...]] = {}
        """The nodes that an nsqlookupd named last, by its address."""
        self.nsqds = tuple(nsqds)
        self.lookupds = tuple(lookupds)

    @property
    def nsqds(self) -> tuple[str, ...]:
        """The HTTP addresses of the nsqds that were given; a change has effect at once."""
        return self._nsqds

    @nsqds.setter
    def nsqds(self, addresses: Iterable[str]) -> None:
        self._nsqds = tuple(addresses)
        self._given.clear()
        self.requests.trust_addresses(NSQD, self._nsqds)

    @property
    def lookupds(self) -> tuple[str, ...]:
        """The HTTP addresses of the nsqlookupds; a change has effect at once."""
        return self._lookupds

    @lookupds.setter
    def lookupds(self, addresses: Iterable[str]) -> None:
        self.ask_lookupds(addresses)
        self.requests.trust_addresses(NSQLOOKUPD, self._lookupds)

    def ask_lookupds(self, addresses: Iterable[str]) -> None:
        """Ask other nsqlookupds from now on. One that was not in `lookupds` gets no secret."""
        self._lookupds = tuple(addresses)
        self._named = {address: nodes for address, nodes in self._named.items() if address in self._lookupds}

    async def close(self) -> None:
        """Close all idle connections."""
        await self.requests.close()

    # -- names

    async def topics(self) -> Partial[tuple[str, ...]]:
        """Return the names of all topics, sorted. NoServerAnswered."""
        if self._lookupds:
            outcomes = await self._ask_lookupds("/topics", {}, _topic_names)
            addresses = [self.request_address(node) for node in self._stand_ins(outcomes)]
        else:
            outcomes, addresses = [], list(self.nsqds)
        asked = [self.ask(NSQD, address, "/stats", _NAMES_ONLY, topic_names_in) for address in addresses]
        program = NSQLOOKUPD if self._lookupds else NSQD
        found, errors = split(program, [*outcomes, *await ask_all(asked)])
        return Partial(_union(found), _warnings(errors))

    async def inactive_topics(self) -> Partial[dict[str, tuple[str, ...]]]:
        """
        Return the topics that nsqlookupds know without a node, and their channels. None without nsqlookupds.
        NoServerAnswered.
        """
        if not self._lookupds:
            return Partial({})
        names, errors = split(NSQLOOKUPD, await self._ask_lookupds("/topics", {}, _topic_names))
        nodes = await self.nodes()
        active = {topic.topic for node in nodes.value for topic in node.topics if not topic.is_tombstoned}
        inactive = [name for name in _union(names) if name not in active]
        channels = await ask_all([self._lookupd_channels(topic) for topic in inactive])
        found = {
            topic: () if isinstance(outcome, ServerFailed) else outcome
            for topic, outcome in zip(inactive, channels, strict=True)
        }
        return Partial(found, _warnings(errors) or nodes.warnings)

    # -- nodes

    async def nodes(self) -> Partial[tuple[Node, ...]]:
        """Return all nodes; from nsqlookupds, sorted by host name. NoServerAnswered."""
        if self._lookupds:
            return await self._registered_nodes()
        outcomes = await ask_all([self._given_node(address) for address in self.nsqds])
        found, errors = split(NSQD, outcomes)
        return Partial(tuple(found), _warnings(errors))

    async def node(self, address: str) -> Partial[NodeStats]:
        """Return a node with its topics, channels and clients. UnknownObject, NoServerAnswered."""
        nodes = await self.nodes()
        node = next((node for node in nodes.value if node.http_address == address), None)
        if node is None:
            raise UnknownObject("node", address)
        (stats,), _ = split(NSQD, await ask_all([self._node_stats(node, _JSON)]))
        return Partial(stats, nodes.warnings)

    async def connections(self) -> Partial[tuple[NodeStats, ...]]:
        """Return all nodes that answer, with their consumers and producers. NoServerAnswered."""
        nodes = await self.nodes()
        found, errors = split(NSQD, await ask_all([self._node_stats(node, _JSON) for node in nodes.value]))
        return Partial(tuple(found), (*nodes.warnings, *_warnings(errors)))

    @property
    def lookupd_states(self) -> tuple[LookupdState, ...]:
        """The nsqlookupds that were asked for the nodes, as they answered last."""
        return tuple(
            LookupdState(
                address=address, error=self._lookupd_errors[address], node_count=len(self._named.get(address, ()))
            )
            for address in self._lookupds
            if address in self._lookupd_errors
        )

    async def topic_nodes(self, topic: str) -> Partial[tuple[Node, ...]]:
        """Return the nodes that have a topic. NoServerAnswered."""
        if self._lookupds:
            outcomes = await self._ask_lookupds("/lookup", {"topic": topic}, nodes_in)
            asked = await ask_all([self._if_it_has(node, topic) for node in self._stand_ins(outcomes)])
            found, errors = split(NSQLOOKUPD, [*outcomes, *(outcome for outcome in asked if outcome != ())])
            errors += _without_address(node for nodes in found for node in nodes)
            by_address: dict[str, Node] = {}
            for node in (node for nodes in found for node in nodes if node.has_address):
                by_address.setdefault(node.http_address, node)
            return Partial(_in_order(by_address.values()), _warnings(errors))
        kept, errors = split(NSQD, await ask_all([self._given_node_with(address, topic) for address in self.nsqds]))
        return Partial(_in_order(node for node in kept if node is not None), _warnings(errors))

    # -- statistics

    async def topic(self, name: str) -> Partial[TopicStats]:
        """Return a topic over its nodes, without clients. NoServerAnswered, also when no node has the topic."""
        nodes = await self.topic_nodes(name)
        stats = await self._topic_stats(nodes.value, name, {**_WITHOUT_CLIENTS, "topic": name})
        return Partial(merged_topic(name, stats.value), (*nodes.warnings, *stats.warnings))

    async def channel(self, topic: str, channel: str) -> Partial[ChannelStats]:
        """Return a channel over its nodes, with its clients. UnknownObject, NoServerAnswered."""
        nodes = await self.topic_nodes(topic)
        found = await self.channel_on(nodes.value, topic, channel)
        return Partial(found.value, (*nodes.warnings, *found.warnings))

    async def channel_on(
        self, nodes: Sequence[Node], topic: str, channel: str, *, has_clients: bool = True
    ) -> Partial[ChannelStats]:
        """Return a channel over the nodes of its topic. UnknownObject, NoServerAnswered."""
        parameters = _JSON if has_clients else _WITHOUT_CLIENTS
        stats = await self._topic_stats(nodes, topic, {**parameters, "topic": topic, "channel": channel})
        found = [each for entry in stats.value for each in entry.channels if each.channel_name == channel]
        if not found:
            raise UnknownObject("channel", channel)
        return Partial(merged_channel(found), stats.warnings)

    async def counter(self) -> Partial[tuple[ChannelCount, ...]]:
        """Return the number of messages of each channel of each node. NoServerAnswered, also when there is no node."""
        nodes = await self.nodes()
        stats, errors = split(NSQD, await ask_all([self._node_stats(node, _WITHOUT_CLIENTS) for node in nodes.value]))
        counts = tuple(
            ChannelCount(
                node=channel.node,
                topic_name=channel.topic_name,
                channel_name=channel.channel_name,
                message_count=channel.message_count,
            )
            for node in stats
            for topic in node.topics
            for channel in topic.channels
        )
        return Partial(counts, (*nodes.warnings, *_warnings(errors)))

    async def stats(self) -> Partial[ClusterStats]:
        """
        Return all nodes, topics and channels, without clients: one request to each nsqd. Nodes that do not answer are
        left out with a warning. NoServerAnswered when no nsqlookupd answers, or no nsqd of several.
        """
        if self._lookupds:
            nodes = await self.nodes()
            if not nodes.value:
                return Partial(ClusterStats(), nodes.warnings)
            warnings = nodes.warnings
            asked = [self._node_stats(node, _WITHOUT_CLIENTS, kind=SAMPLES) for node in nodes.value]
        else:
            warnings, asked = (), [self._given_node_stats(address) for address in self.nsqds]
        found, errors = split(NSQD, await ask_all(asked))
        errors += _leave_out_the_largest(found)
        return Partial(await self._merged(found), (*warnings, *_warnings(errors)))

    async def _merged(self, nodes: Sequence[NodeStats]) -> ClusterStats:
        if sum(len(node.topics) for node in nodes) < _MANY_TOPICS:
            return _merge(nodes)
        return await self.requests.in_thread(lambda: _merge(nodes))

    # -- requests

    async def ask(
        self,
        program: str,
        address: str,
        path: str,
        parameters: Mapping[str, str],
        reader: Callable[[JsonObject], V],
        *,
        kind: str = QUERIES,
    ) -> V:
        """Return what `reader` makes of the answer of a server. ServerFailed."""
        answer = await self.requests.get(program, address, path, parameters, kind=kind)
        return await self.requests.read(answer, reader)

    async def _ask_lookupds(
        self, path: str, parameters: Mapping[str, str], reader: Callable[[JsonObject], V]
    ) -> list[V | ServerFailed]:
        """Return the answer of each nsqlookupd, or why it has none, in order."""
        outcomes = await ask_all(
            [self.ask(NSQLOOKUPD, address, path, parameters, reader) for address in self._lookupds]
        )
        return [
            ServerFailed(f"{outcome}; going on with the nodes that it named last")
            if isinstance(outcome, ServerFailed) and address in self._named and _is_silent(outcome)
            else outcome
            for address, outcome in zip(self._lookupds, outcomes, strict=True)
        ]

    def _stand_ins(self, outcomes: Sequence[object]) -> tuple[Node, ...]:
        """Return the nodes that were named last by the nsqlookupds that gave no answer."""
        return tuple(
            {
                node.http_address: node
                for address, outcome in zip(self._lookupds, outcomes, strict=True)
                if _is_silent(outcome)
                for node in self._named.get(address, ())
            }.values()
        )

    async def _if_it_has(self, node: Node, topic: str) -> tuple[Node, ...]:
        """Return a node if it has the topic, without a tombstone."""
        if NodeTopic(topic, True) in node.topics:
            return ()
        names = await self.ask(NSQD, self.request_address(node), "/stats", _only(topic), topic_names_in)
        return (node,) if topic in names else ()

    async def node_itself(self, address: str) -> Node:
        """Return the node with this `http_address` as it describes itself. NoServerAnswered."""
        (node,), _ = split(NSQD, await ask_all([self._given_node(self._given.get(address, address))]))
        return node

    def request_address(self, node: Node) -> str:
        """Return where a node is reached: at the address that was given for it, if any."""
        return self._given.get(node.http_address, node.http_address)

    async def _lookupd_channels(self, topic: str) -> tuple[str, ...]:
        outcomes = await self._ask_lookupds("/channels", {"topic": topic}, _channel_names)
        return _union(outcome for outcome in outcomes if not isinstance(outcome, ServerFailed))

    async def _registered_nodes(self) -> Partial[tuple[Node, ...]]:
        lookupds = self._lookupds
        outcomes = await self._ask_lookupds("/nodes", {}, nodes_in)
        errors = [outcome for outcome in outcomes if isinstance(outcome, ServerFailed)]
        for lookupd, outcome in zip(lookupds, outcomes, strict=True):
            self._lookupd_errors[lookupd] = str(outcome) if isinstance(outcome, ServerFailed) else ""
            if not isinstance(outcome, ServerFailed):
                self._named[lookupd] = tuple(node for node in outcome if node.has_address)
                errors += _without_address(outcome)
        if self._named.keys().isdisjoint(lookupds):
            raise NoServerAnswered(NSQLOOKUPD, errors)
        by_address: dict[str, Node] = {}
        for lookupd in lookupds:
            for node in self._named.get(lookupd, ()):
                first = by_address.get(node.tcp_address, node)
                remote = (*first.remote_addresses, f"{lookupd}/{node.remote_address or 'N/A'}")
                by_address[node.tcp_address] = attrs.evolve(first, remote_addresses=remote)
        return Partial(_in_order(with_outdated_marked(by_address.values())), _warnings(errors))

    async def _given_node(self, address: str) -> Node:
        info = await self.ask(NSQD, address, "/info", {}, lambda document: document)
        topics = await self.ask(NSQD, address, "/stats", _NAMES_ONLY, topic_names_in)
        return self._remember_address(address, node_in(info, topics))

    async def _given_node_with(self, address: str, topic: str) -> Node | None:
        """Return the nsqd at an address if it has the topic."""
        topics = await self.ask(NSQD, address, "/stats", _only(topic), topic_names_in)
        if topic not in topics:
            return None
        info = await self.ask(NSQD, address, "/info", {}, lambda document: document)
        return self._remember_address(address, node_in(info, topics))

    async def _given_node_stats(self, address: str) -> NodeStats:
        info = await self.ask(NSQD, address, "/info", {}, lambda document: document, kind=SAMPLES)
        answer = await self.requests.get(NSQD, address, "/stats", _WITHOUT_CLIENTS, kind=SAMPLES)

        def read(document: JsonObject) -> NodeStats:
            node = self._remember_address(address, node_in(info, topic_names_in(document)))
            return node_stats_in(document, node, answer.nsqtw_version)

        return await self.requests.read(answer, read)

    def _remember_address(self, address: str, node: Node) -> Node:
        """Remember the address of a node, which takes the place of what an old nsqd does not say of itself."""
        if not node.broadcast_address or not node.hostname:
            try:
                host, port = host_and_port(address.rpartition("/")[2])
            except OptionError as error:
                raise ServerFailed(str(error)) from error
            if not node.broadcast_address:
                node = attrs.evolve(node, broadcast_address=host, http_port=port)
            node = attrs.evolve(node, hostname=node.hostname or host)
        if not is_host(node.broadcast_address) or (node.http_port and not is_port(node.http_port)):
            errors = _without_address([node])
            raise ServerFailed(f"{address}: {errors[0]}")
        self._given[node.http_address] = address
        return node

    async def _node_stats(self, node: Node, parameters: Mapping[str, str], *, kind: str = QUERIES) -> NodeStats:
        answer = await self.requests.get(NSQD, self.request_address(node), "/stats", parameters, kind=kind)
        return await self.requests.read(answer, lambda document: node_stats_in(document, node, answer.nsqtw_version))

    async def _topic_stats(
        self, nodes: Sequence[Node], topic: str, parameters: Mapping[str, str]
    ) -> Partial[list[TopicStats]]:
        async def ask(node: Node) -> tuple[TopicStats, ...]:
            answer = await self.requests.get(NSQD, self.request_address(node), "/stats", parameters)
            return await self.requests.read(
                answer, lambda document: topics_in(document, node, bool(answer.nsqtw_version))
            )

        found, errors = split(NSQD, await ask_all([ask(node) for node in nodes]))
        entries = [entry for entries in found for entry in entries if entry.topic_name == topic]
        return Partial(entries, _warnings(errors))


def _merge(nodes: Sequence[NodeStats]) -> ClusterStats:
    by_name: dict[str, list[TopicStats]] = {}
    for topic in (topic for node in nodes for topic in node.topics):
        by_name.setdefault(topic.topic_name, []).append(topic)
    return ClusterStats(tuple(nodes), {name: merged_topic(name, by_name[name]) for name in sorted(by_name)})


def _in_order(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda node: node_order(node.hostname, node.http_address)))


def _leave_out_the_largest(nodes: list[NodeStats]) -> list[ServerFailed]:
    """Remove the nodes with the most topics and channels while all have too many. Return the reasons."""
    total = sum(node.part_count for node in nodes)
    left_out: list[ServerFailed] = []
    while total > MAX_PARTS_TOGETHER:
        largest = max(nodes, key=lambda node: node.part_count)
        nodes.remove(largest)
        total -= largest.part_count
        reason = f"left out, because all nodes together have more than {MAX_PARTS_TOGETHER} topics and channels"
        left_out.append(ServerFailed(f"{largest.node.http_address}: {reason}"))
    return left_out


def _is_silent(outcome: object) -> bool:
    """Return whether the outcome of a question to an nsqlookupd is no answer; that it has no such topic is one."""
    return isinstance(outcome, ServerFailed) and outcome.code != _TOPIC_NOT_FOUND


def _without_address(nodes: Iterable[Node]) -> list[ServerFailed]:
    """Return the reason why each node that cannot be connected to is left out."""
    return [
        ServerFailed(
            f"left out an nsqd with broadcast_address {node.broadcast_address[:_SHOWN_CHARACTERS]!r}, tcp_port"
            f" {node.tcp_port} and http_port {node.http_port}, which are no host and ports"
        )
        for node in nodes
        if not node.has_address
    ]


def _topic_names(document: JsonObject) -> tuple[str, ...]:
    return names_in(document, "topics")


def _channel_names(document: JsonObject) -> tuple[str, ...]:
    return names_in(document, "channels")


def _only(topic: str) -> Mapping[str, str]:
    """Return the parameters of /stats that ask whether a node has a topic."""
    return {**_NAMES_ONLY, "topic": topic}


def _union(found: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for names in found for name in names}))


def _warnings(errors: Sequence[Exception]) -> tuple[str, ...]:
    """Return the warning of one step."""
    return ("\n".join(map(str, errors)),) if errors else ()
