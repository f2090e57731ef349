"""
One message that is requeued for ever and one deferred by an hour, while many others pass.

First a lone consumer at RDY 1 requeues the poisoned message at each receipt and must still get all of a
thousand others. Then, with that consumer still there, a second one at full RDY lets millions pass. Neither
message may pin what lies behind it on disk: the data path must stay small.
"""

import socket
from collections.abc import Callable
from dataclasses import replace

from . import plan, wire
from .errors import BrokerFailed, WrongCount
from .plan import BODY_BYTES, RDY, Consuming, Plan
from .server import Broker
from .watch import MB, Watch

TOPIC, CHANNEL = "poison", "ch1"
DEFERRED_MS = 3_600_000
LONE_MESSAGES = 1000
MAX_WAITING = 50_000
_POISON = b"poison".ljust(BODY_BYTES, b".")


class _Dialogue:
    """
    A V2 connection for a few commands, one after another.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._received = b""
        self.say(wire.identify())

    def say(self, command: bytes, answer: bytes = b"OK") -> None:
        """
        Send a command and wait for its answer; raises `BrokerFailed` for another one.
        """
        self._socket.sendall(command)
        while (frame := self.next_frame()) != (wire.RESPONSE, answer):
            if frame.data != wire.HEARTBEAT:
                raise BrokerFailed(f"to {command[:20]!r} the broker answered {frame.data[:80]!r}")

    def next_frame(self) -> wire.Frame:
        while (frame := wire.next_frame(self._received, 0, len(self._received))) is None:
            data = self._socket.recv(65536)
            if not data:
                raise BrokerFailed("the broker closed a connection")
            self._received += data
        self._received = self._received[len(frame.data) + 8 :]
        return frame

    def take_first(self) -> bytes:
        """
        Receive one message, put it back without delay, leave the channel, and return the message's id.
        """
        self._socket.sendall(b"RDY 1\n")
        while (frame := self.next_frame()).kind != wire.MESSAGE:
            pass
        if not frame.data.endswith(_POISON):
            raise BrokerFailed(f"the first message should be the poisoned one, not {frame.data!r}")
        # RDY 0 goes first, or the message would come back at once and be in flight when we leave.
        message_id = frame.data[10 : 10 + wire.ID_BYTES]
        self._socket.sendall(b"RDY 0\nREQ %s 0\n" % message_id)
        self.say(b"CLS\n", wire.CLOSE_WAIT)
        return message_id


def _publish_both(port: int) -> bytes:
    """
    Publish the poisoned and the deferred message; return the id of the first.
    """
    producer = _Dialogue(port)
    producer.say(wire.pub(TOPIC, _POISON))
    consumer = _Dialogue(port)
    consumer.say(wire.sub(TOPIC, CHANNEL))
    message_id = consumer.take_first()
    producer.say(wire.dpub(TOPIC, DEFERRED_MS, wire.body(BODY_BYTES)))
    return message_id


def run(broker: Broker, messages: int, show_seconds: float, show: Callable[[str], None]) -> int:
    """
    Carry out the whole case with ``messages`` passing; returns the most bytes the data path took.

    Raises `WrongCount` when a consumer does not get what it should.
    """
    broker.create(TOPIC, (CHANNEL,))
    poison_id = _publish_both(broker.tcp_port)
    watch = Watch(broker, show_seconds, show)
    at_rdy_1 = Consuming(broker.tcp_port, TOPIC, CHANNEL, ready_count=1, poison_id=poison_id)
    few = replace(plan.mpub(broker.tcp_port, TOPIC, 1), limit=LONE_MESSAGES)
    lone = watch.carry_out(Plan(broker.pid, few, (at_rdy_1,)))
    show(
        f"alone at RDY 1: {lone.received_by[0]:,} others in {lone.seconds:.2f} s, "
        f"poisoned message requeued {lone.requeued_by[0]:,} times"
    )
    many = replace(plan.mpub(broker.tcp_port, TOPIC, 2), limit=messages)
    consuming = (at_rdy_1, replace(at_rdy_1, ready_count=RDY))
    passing = watch.carry_out(Plan(broker.pid, many, consuming, backlog=MAX_WAITING, keep_ids=False))
    show(
        f"{passing.published:,} passed in {passing.seconds:.1f} s; the consumer at RDY 1 got "
        f"{passing.received_by[0]:,} of them, the other {passing.received_by[1]:,}; "
        f"poisoned message requeued {passing.requeued_by[0]:,} and {passing.requeued_by[1]:,} times"
    )
    if not passing.received_by[0]:
        raise WrongCount("the consumer at RDY 1 got nothing but the poisoned message")
    broker.settle(TOPIC, lone.published + passing.published + 2, left=2)
    if (deferred := broker.depths(TOPIC).channels[CHANNEL][2]) != 1:
        raise WrongCount(f"{deferred} messages are deferred, not 1")
    watch.sample("at the end")
    show(f"most resident {watch.most_resident / MB:.1f} MB, most disk {watch.most_disk / MB:.1f} MB")
    return watch.most_disk
