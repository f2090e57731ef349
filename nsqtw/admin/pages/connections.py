"""The page of all connections: consumers with their channels, producers with the topic that nsqd tells of each."""

from __future__ import annotations

from functools import partial

import attrs

from nsqtw.admin.pages.listing import Sorts, listing
from nsqtw.admin.pages.page import CONNECTIONS, Content, page
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.cluster.model import ConsumerStats, NodeStats
from nsqtw.errors import ClusterError


@attrs.frozen
class Connection:
    """A consumer with its channel, or a producer with the number of messages that it published to a topic."""

    client: ConsumerStats
    topic: str = ""
    channel: str = ""
    published: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """What a filter looks into."""
        topics = " ".join(topic for topic, _ in self.published)
        client = self.client
        who = f"{client.client_id} {client.hostname} {client.remote_address} {client.user_agent}"
        return f"{who} {self.topic}/{self.channel} {topics} {client.node}"

    @property
    def messages(self) -> int:
        """Messages that were published."""
        return sum(count for _, count in self.published)


CONSUMER_SORTS: Sorts[Connection] = {
    "name": lambda each: each.name,
    "channel": lambda each: f"{each.topic}/{each.channel}",
    "node": lambda each: each.client.node,
    "in_flight": lambda each: each.client.in_flight_count,
    "ready": lambda each: each.client.ready_count,
    "finished": lambda each: each.client.finish_count,
    "requeued": lambda each: each.client.requeue_count,
    "connected": lambda each: -each.client.connect_ts,
}
PRODUCER_SORTS: Sorts[Connection] = {
    "name": lambda each: each.name,
    "node": lambda each: each.client.node,
    "messages": lambda each: each.messages,
    "connected": lambda each: -each.client.connect_ts,
}


@page("connections", "connections.html", CONNECTIONS)
async def connections(page_request: PageRequest) -> Content:
    """Return the content of the list: consumers, or producers."""
    nodes: tuple[NodeStats, ...] = ()
    try:
        found = await page_request.cluster.connections()
    except ClusterError as error:
        page_request.warn(str(error))
    else:
        nodes = found.value
        for warning in found.warnings:
            page_request.warn(warning)
    consumers = [
        Connection(client, channel.topic_name, channel.channel_name)
        for node in nodes
        for topic in node.topics
        for channel in topic.channels
        for client in channel.clients
    ]
    producers = [
        Connection(producer.client, published=producer.published) for node in nodes for producer in node.producers
    ]
    is_of_producers = page_request.query.get("list") == "producers"
    rows, sorts = (producers, PRODUCER_SORTS) if is_of_producers else (consumers, CONSUMER_SORTS)
    url = partial(page_request.links.page, "connections")
    return {
        "title": "Connections",
        "list": "producers" if is_of_producers else "consumers",
        "listing": listing(rows, sorts, page_request.query, url, name=lambda each: each.name),
        "list_url": url,
        "consumer_count": len(consumers),
        "producer_count": len(producers),
        "now": page_request.now,
    }
