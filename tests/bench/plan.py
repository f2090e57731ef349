"""
What a load process is told to do, and what it reports.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from . import wire

BODY_BYTES = 200
MPUB_MESSAGES = 200
RDY = 2500


class Replies(Protocol):
    """
    Counts positive replies in what a connection receives. ``rest`` is what has come of one that is not whole.
    """

    rest: bytes

    def feed(self, data: bytes) -> int: ...


@dataclass(frozen=True)
class Publishing:
    """
    Connections that send one ready-made payload again and again.

    ``payload`` holds ``messages`` messages and is acknowledged by ``replies`` positive replies. Each
    connection keeps ``window`` payloads unanswered: 1 waits for every answer. No payload is sent once
    ``seconds`` have passed or ``limit`` messages are out, nor while more than ``rate`` messages a second are.
    """

    port: int
    greeting: bytes
    payload: bytes
    new_replies: Callable[[], Replies]
    messages: int
    replies: int
    connections: int
    window: int = 1
    seconds: float = float("inf")
    limit: float = float("inf")
    rate: float = float("inf")


@dataclass(frozen=True)
class Consuming:
    """
    Connections subscribed to one channel; every body has ``body_bytes`` bytes.

    ``protocol`` is V2 or V3. With ``single_fins`` each FIN is written by itself.
    ``poison_id`` is requeued with no delay at each receipt instead of finished, and not counted as received.
    """

    port: int
    topic: str
    channel: str
    connections: int = 1
    ready_count: int = RDY
    body_bytes: int = BODY_BYTES
    poison_id: bytes = b""
    protocol: str = "V2"
    single_fins: bool = False


@dataclass(frozen=True)
class Plan:
    """
    One run of a load process against the broker with process id ``broker_pid``.

    Each consumed channel must deliver ``prefilled`` messages and all that this run publishes, each once.
    ``backlog`` > 0 holds publishers back while that many messages wait to be received. ``keep_ids`` lets the
    run look for repeats afterwards, at 21 bytes a message. Consumers read nothing for ``stall_seconds``.
    """

    broker_pid: int
    publishing: Publishing | None = None
    consuming: tuple[Consuming, ...] = ()
    prefilled: int = 0
    backlog: int = 0
    keep_ids: bool = True
    stall_seconds: float = 0.0


@dataclass
class Tally:
    """
    What a run did. Times are seconds; ``broker_cpu`` and ``load_cpu`` cover the measured ``seconds``.

    ``received`` counts per channel, ``received_by`` and ``requeued_by`` per connection in order of the plan.
    """

    published: int = 0
    received: dict[str, int] = field(default_factory=dict)
    received_by: list[int] = field(default_factory=list)
    requeued_by: list[int] = field(default_factory=list)
    seconds: float = 0.0
    broker_cpu: float = 0.0
    load_cpu: float = 0.0

    @property
    def delivered(self) -> int:
        return sum(self.received.values())


def mpub(
    port: int, topic: str, connections: int, messages: int = MPUB_MESSAGES, body_bytes: int = BODY_BYTES
) -> Publishing:
    """
    MPUB commands of so many messages, each connection waiting for the answer to each.
    """
    payload = wire.mpub(topic, [wire.body(body_bytes)] * messages)
    return Publishing(port, wire.identify(), payload, wire.FrameReplies, messages, 1, connections)


def pub(port: int, topic: str, connections: int, pipelined: int = 0) -> Publishing:
    """
    Single PUBs: waiting for each OK, or with up to two runs of ``pipelined`` PUBs unanswered.
    """
    count = pipelined or 1
    payload = wire.pub(topic, wire.body(BODY_BYTES)) * count
    window = 2 if pipelined else 1
    return Publishing(port, wire.identify(), payload, wire.FrameReplies, count, count, connections, window)


def http_pub(port: int, topic: str, connections: int) -> Publishing:
    """
    POST /pub on keep-alive connections, each waiting for its answer.
    """
    payload = wire.post(f"/pub?topic={topic}", wire.body(BODY_BYTES))
    return Publishing(port, b"", payload, wire.HttpReplies, 1, 1, connections)


def http_mpub(port: int, topic: str, connections: int) -> Publishing:
    """
    POST /mpub?binary=true on keep-alive connections, each waiting for its answer.
    """
    content = wire.message_list([wire.body(BODY_BYTES)] * MPUB_MESSAGES)
    payload = wire.post(f"/mpub?topic={topic}&binary=true", content)
    return Publishing(port, b"", payload, wire.HttpReplies, MPUB_MESSAGES, 1, connections)
