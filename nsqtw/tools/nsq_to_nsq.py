"""`nsq_to_nsq`: republishes the messages of topics to other nsqds."""

from __future__ import annotations

import random

import attrs
from twisted.internet.defer import Deferred

from nsqtw.client.message import Message
from nsqtw.client.options import TOOL_AGENT, ClientOptions
from nsqtw.client.twisted import Consumer, Producer
from nsqtw.errors import ClientLibraryError
from nsqtw.names import is_valid_name
from nsqtw.options.fields import option
from nsqtw.options.types import INTEGER, TEXT, TEXTS
from nsqtw.tools.destinations import HOSTPOOL, Status, make_pool, status_warning
from nsqtw.tools.json_filter import JsonFilter, Verdict
from nsqtw.tools.program import Run, Tool
from nsqtw.tools.sources import CLIENT_OPTIONS, SourceOptions, consume, make_consumer, source_mistake


@attrs.define(kw_only=True)
class ToNsqOptions(SourceOptions):
    """The options of nsq_to_nsq."""

    topic: tuple[str, ...] = option(TEXTS, (), "nsq topic (may be given multiple times)")
    channel: str = option(TEXT, "nsq_to_nsq", "nsq channel")
    destination_nsqd_tcp_address: tuple[str, ...] = option(
        TEXTS, (), "destination nsqd TCP address (may be given multiple times)"
    )
    destination_topic: str = option(
        TEXT, "", "use this destination topic for all consumed topics (default is consumed topic name)"
    )
    max_in_flight: int = option(INTEGER, 200, "max number of messages to allow in flight")
    mode: str = option(
        TEXT, HOSTPOOL, "the upstream request mode options: round-robin, hostpool (default), epsilon-greedy"
    )
    require_json_field: str = option(TEXT, "", "for JSON messages: only pass messages that contain this field")
    require_json_value: str = option(
        TEXT, "", "for JSON messages: only pass messages in which the required field has this value"
    )
    whitelist_json_field: tuple[str, ...] = option(
        TEXTS, (), "for JSON messages: pass this field (may be given multiple times)"
    )
    status_every: int = option(INTEGER, 250, "the # of requests between logging status (per destination), 0 disables")
    producer_opt: tuple[str, ...] = option(
        CLIENT_OPTIONS, (), "option to passthrough to nsq.Producer (may be given multiple times)"
    )


def _mistake(options: ToNsqOptions) -> str:
    if not options.topic or not options.channel:
        return "--topic and --channel are required"
    if not all(map(is_valid_name, options.topic)):
        return "--topic is invalid"
    if options.destination_topic and not is_valid_name(options.destination_topic):
        return "--destination-topic is invalid"
    if not is_valid_name(options.channel):
        return "--channel is invalid"
    found = source_mistake(options)
    return found or ("" if options.destination_nsqd_tcp_address else "--destination-nsqd-tcp-address required")


class _Republisher:
    """Publishes messages to the destinations, and responds to them when the destination has answered."""

    def __init__(self, options: ToNsqOptions, run: Run) -> None:
        self._run = run
        self._filter = JsonFilter(options.require_json_field, options.require_json_value, options.whitelist_json_field)
        self._destination_topic = options.destination_topic
        addresses = options.destination_nsqd_tcp_address
        self._pool = make_pool(options.mode, addresses, random.Random())
        self._status = Status(options.status_every, list(addresses), run.say)
        client_options = ClientOptions.from_texts(options.producer_opt, user_agent=f"{run.name}/{TOOL_AGENT}")
        self._producers = {address: Producer(address, options=client_options) for address in addresses}

    def handle(self, topic: str, message: Message) -> None:
        """Republish a message of `topic`."""
        outcome = self._filter.apply(message.body)
        if outcome.complaint:
            self._run.say(outcome.complaint)
        if outcome.verdict is Verdict.REQUEUE:
            message.requeue()
            return
        if outcome.verdict is Verdict.DROP:
            return
        message.disable_auto_response()
        began = self._run.reactor.seconds()
        address = self._pool.pick(began)
        future: Deferred[None] = self._producers[address].publish(  # type: ignore[assignment]
            self._destination_topic or topic, outcome.body
        )
        future.addCallbacks(
            self._published, self._failed, callbackArgs=(message, address, began), errbackArgs=(message, address)
        )

    def _published(self, result: object, message: Message, address: str, began: float) -> None:
        seconds = self._run.reactor.seconds() - began
        self._pool.succeeded(address, seconds)
        self._status.add(address, seconds)
        message.finish()

    def _failed(self, failure: object, message: Message, address: str) -> None:
        error = getattr(failure, "value", failure)
        if not isinstance(error, ClientLibraryError):
            raise error  # type: ignore[misc]
        if not message.has_responded:
            self._run.say(f"ERROR: failed to publish to {address} - {error}")
        self._pool.failed(address, self._run.reactor.seconds())
        message.requeue()

    async def stop(self) -> None:
        """Close the connections to the destinations."""
        for producer in self._producers.values():
            await producer.stop()


async def _run(options: ToNsqOptions, run: Run) -> None:
    if text := status_warning(options.status_every):
        run.say(text)
    republisher = _Republisher(options, run)
    consumers: list[Consumer] = []
    for topic in options.topic:

        def handle(message: Message, topic: str = topic) -> None:
            republisher.handle(topic, message)

        consumers.append(
            make_consumer(run, options, topic, options.channel, handle, max_in_flight=options.max_in_flight)
        )
    try:
        await consume(run, consumers)
    finally:
        await republisher.stop()


TOOL = Tool("nsq_to_nsq", "republish the messages of topics to other nsqds", ToNsqOptions, _mistake, _run)
main = TOOL.main
