"""
The cases of protocol V3, and those of V2 beside them: ``python -m tests.bench --v3``. Only our broker speaks it.
"""

from . import plan, v3_wire, wire
from .cases import KILOBYTE, PIPELINED, Case, draining, passing, publishing
from .plan import Publishing

_BODY = wire.body(plan.BODY_BYTES)


def _publish(port: int, topic: str, connections: int, pipelined: int = 0) -> Publishing:
    """
    PUBLISH frames of one message: waiting for each CONFIRM, or with up to two runs unanswered.
    """
    count = pipelined or 1
    payload = b"".join([v3_wire.publish(topic, [_BODY], number) for number in range(count)])
    window = 2 if pipelined else 1
    return Publishing(port, v3_wire.hello(), payload, v3_wire.ConfirmReplies, count, count, connections, window)


def _publish_many(port: int, topic: str, messages: int, body_bytes: int) -> Publishing:
    payload = v3_wire.publish(topic, [wire.body(body_bytes)] * messages)
    return Publishing(port, v3_wire.hello(), payload, v3_wire.ConfirmReplies, messages, 1, 2)


V3_CASES = (
    Case(
        "v3-mpub",
        "V3 PUBLISH 200 x 200 B, 2 connections",
        "in",
        publishing(lambda broker, topic: _publish_many(broker.tcp_port, topic, plan.MPUB_MESSAGES, plan.BODY_BYTES)),
    ),
    Case(
        "v3-mpub-1k",
        "V3 PUBLISH 100 x 1 KB, 2 connections",
        "in",
        publishing(lambda broker, topic: _publish_many(broker.tcp_port, topic, 100, KILOBYTE)),
    ),
    *(
        Case(
            f"v3-pub-{count}",
            f"V3 PUBLISH 200 B, {count} connections, each waits",
            "in",
            publishing(lambda broker, topic, count=count: _publish(broker.tcp_port, topic, count)),  # type: ignore[misc]
        )
        for count in (2, 8, 64)
    ),
    Case(
        "v3-pub-pipelined",
        "V3 PUBLISH 200 B, 8 conn., 200 unanswered",
        "in",
        publishing(lambda broker, topic: _publish(broker.tcp_port, topic, 8, PIPELINED)),
    ),
    Case("v3-sub-1", "V3 consume a backlog, 1 channel", "out", draining(1, protocol="V3")),
    Case("v3-sub-1k", "V3 consume a backlog, 1 KB", "out", draining(1, 100, KILOBYTE, protocol="V3")),
    Case("v3-sub-4", "V3 consume a backlog, 4 channels", "out", draining(4, protocol="V3")),
    Case("single-fins", "SUB and a write for each FIN", "out", draining(1, single_fins=True)),
    Case("v3-single-fins", "V3 and a write for each FIN", "out", draining(1, protocol="V3", single_fins=True)),
    Case("v3-pass-1", "MPUB and V3 consumers at once, 1 channel", "in and out", passing(1, protocol="V3")),
    Case("v3-pass-4", "MPUB and V3 consumers at once, 4 channels", "in and 4 x out", passing(4, protocol="V3")),
)
FLAGS = ["--protocol=V2,V3"]
"""What our broker needs for them."""
