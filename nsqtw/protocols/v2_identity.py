"""
Identity of the client of a V2 session, and the settings of its consumer.

A client may IDENTIFY again until it subscribes. Names, and what was agreed on, are then those of the last time. But its
deliveries time out, are sampled and are near or far as it said the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nsqtw.core.client import Client
from nsqtw.core.consumer import Consumer
from nsqtw.core.timers import TimerQueue
from nsqtw.errors import ClientError
from nsqtw.interfaces import OperatorLog
from nsqtw.options.broker import Options
from nsqtw.protocols import identify
from nsqtw.protocols.v2_headers import with_headers
from nsqtw.protocols.v2_trace import Identified

MAX_IDENTIFIES = 10
"""
Maximum number of IDENTIFY commands. nsqd has no limit; but parsing takes long and writes a log line, and an
unauthenticated client could send a hundred thousand of them in a few compressed kilobytes.
"""

_EXPERIMENT = "topology-aware-consumption"


class Identity:
    """The IDENTIFY data of `client`, on a broker with `options`. `log` gets a line of each."""

    def __init__(self, client: Client, options: Options, log: OperatorLog) -> None:
        self._client = client
        self._options = options
        self._log = log
        self.settings = identify.Settings(options.msg_timeout, options.output_buffer_timeout)
        self.count = 0
        """The number of IDENTIFY commands."""
        self._sample_rate = 0
        self._msg_timeout = self.settings.msg_timeout
        self._zone_local = self._region_local = False

    def learn(self, body: bytes) -> dict[str, Any]:
        """IDENTIFY: all that it says. ClientError."""
        self.count += 1
        if self.count > MAX_IDENTIFIES:
            raise ClientError("E_INVALID", f"cannot IDENTIFY more than {MAX_IDENTIFIES} times")
        fields = identify.decode(body)
        client, options, settings = self._client, self._options, self.settings
        text = "[{client}] IDENTIFY: {identify}"
        self._log("info", text, client=client.remote_address, identify=Identified(fields))
        identify.apply(fields, settings, options)
        client.client_id, client.hostname = fields["client_id"], fields["hostname"]
        client.user_agent = fields["user_agent"]
        client.topology_region, client.topology_zone = fields["topology_region"], fields["topology_zone"]
        client.sample_rate = settings.sample_rate
        if self.count == 1:
            self._sample_rate, self._msg_timeout = settings.sample_rate, settings.msg_timeout
            if _EXPERIMENT in options.enable_experiment:
                self._zone_local = client.topology_zone == options.topology_zone
                self._region_local = client.topology_region == options.topology_region
        return fields

    def negotiate(self, fields: dict[str, Any], *, needs_auth: bool) -> tuple[identify.Features, bytes]:
        """Return the features to start, and the response. ClientError."""
        self.settings.headers = fields["headers"]
        features = identify.negotiate(fields, self._client, self._options)
        return features, identify.answer(self.settings, features, self._client, self._options, needs_auth)

    def consumer(
        self, timers: TimerQueue, deliver: Callable[[bytes], None], disconnect: Callable[[], None]
    ) -> Consumer:
        """Return the consumer of the client for the channel that it subscribes to."""
        consumer = Consumer(self._client, timers, deliver, disconnect, self._msg_timeout)
        if self.settings.headers:

            def deliver_with_headers(frames: bytes, headers: Sequence[bytes]) -> None:
                deliver(with_headers(frames, headers))

            consumer.deliver_with_headers = deliver_with_headers
        consumer.touch_timeout = self.settings.msg_timeout
        consumer.sample_rate = self._sample_rate
        consumer.zone_local, consumer.region_local = self._zone_local, self._region_local
        return consumer
