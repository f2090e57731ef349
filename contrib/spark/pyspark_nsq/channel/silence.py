"""The end of a read of a channel: no message has come for some time."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark_nsq.channel.consumer import ChannelConsumer
from pyspark_nsq.errors import ReadError
from pyspark_nsq.options.channel import ChannelOptions

_LOOK_AGAIN_SECONDS = 0.02


def wait_for_silence(
    options: ChannelOptions, consumer: ChannelConsumer, received_at: Callable[[], float], enough: Callable[[], bool]
) -> None:
    """
    Wait until no message has come for `idleTimeoutMs` while every known nsqd was connected, until `enough` is true, or
    for `maxWaitMs`. `received_at`: time of the last message, by time.monotonic. Raises ReadError when an nsqd refuses,
    or when none could be reached.
    """
    deadline = time.monotonic() + options.max_wait_ms / 1000
    idle_seconds = options.idle_timeout_ms / 1000
    complete_at: float | None = None
    while (now := time.monotonic()) < deadline and not enough():
        if consumer.failure is not None:
            raise consumer.failure
        if not consumer.complete:
            complete_at = None
        elif complete_at is None:
            complete_at = now
        if complete_at is not None and now - max(complete_at, received_at()) > idle_seconds:
            return
        time.sleep(_LOOK_AGAIN_SECONDS)
    if not consumer.connected and not enough():
        raise ReadError(f"nothing to read from: {consumer.missing}")
