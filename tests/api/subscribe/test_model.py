"""
Clients of all kinds against a simple model, through random histories.

The model knows of each message whether it is ready, with a client, or finished. After each step the counts of the
broker must be those of the model, no client may have more than its credit, no message may be with two clients, and in
the end everything that is not finished must come.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.api.subscribe.harness import EventSource, Message, Poll, SubscribeWeb, WebSocketClient

TIMEOUT = 10.0
CREDIT = 3
POLLS = "polls"


@define(eq=False)
class Held:
    """A delivery whose message is with a client."""

    token: str
    holder: Any
    deadline: float


@define
class Model:
    ready: set[str] = field(factory=set)
    held: dict[str, Held] = field(factory=dict)
    """By body."""
    attempts: dict[str, int] = field(factory=dict)


class HttpConsumers(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.web = SubscribeWeb(msg_timeout=TIMEOUT)
        self.model = Model()
        self.count = 0
        self.polls: list[Poll] = []
        self.streams: list[EventSource | WebSocketClient] = []
        self.old: list[str] = []
        """Tokens of deliveries that are over."""

    # -- clients

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        bodies = [str(self.count + number) for number in range(count)]
        self.count += count
        self.model.ready.update(bodies)
        self.model.attempts.update(dict.fromkeys(bodies, 0))
        self.web.publish(*(body.encode() for body in bodies))
        self.read()

    @rule(count=st.integers(1, 4), seconds=st.sampled_from((0, 5)))
    def poll(self, count: int, seconds: int) -> None:
        self.polls.append(self.web.poll(f"&max={count}&wait={seconds}s"))
        self.read()

    @rule(kind=st.sampled_from((EventSource, WebSocketClient)))
    def connect(self, kind: type[EventSource | WebSocketClient]) -> None:
        if len(self.streams) < 3:
            self.streams.append(kind(self.web, f"&max_in_flight={CREDIT}"))
            self.read()

    @rule(data=st.data())
    def lose_a_poll(self, data: st.DataObject) -> None:
        if self.polls:
            self.polls.pop(data.draw(st.integers(0, len(self.polls) - 1))).lose()
            self.web.turn()

    @rule(data=st.data())
    def lose_a_stream(self, data: st.DataObject) -> None:
        if self.streams:
            stream = self.streams.pop(data.draw(st.integers(0, len(self.streams) - 1)))
            for body, held in list(self.model.held.items()):
                if held.holder is stream:
                    self.give_back(body)
            stream.browser.lose()
            self.read()

    @rule(data=st.data())
    def a_slow_reader(self, data: st.DataObject) -> None:
        if self.streams:
            connection = data.draw(st.sampled_from(self.streams)).browser.connection
            data.draw(st.sampled_from((connection.pauseProducing, connection.resumeProducing)))()
            self.read()

    # -- what they say

    @rule(data=st.data(), verb=st.sampled_from(("finish", "requeue", "touch")), by_websocket=st.booleans())
    def say(self, data: st.DataObject, verb: str, by_websocket: bool) -> None:
        held = dict(self.model.held)
        tokens = [one.token for one in held.values()]
        chosen = data.draw(st.lists(st.sampled_from([*tokens, *self.old, "x"]), max_size=4, unique=True))
        good = {body: one for body, one in held.items() if one.token in chosen}
        for body, one in good.items():
            if verb == "finish":
                del self.model.held[body]
                self.old.append(one.token)
            elif verb == "requeue":
                self.give_back(body)
            else:
                one.deadline = self.web.core.now + TIMEOUT
        sockets = [one for one in self.streams if isinstance(one, WebSocketClient)]
        if by_websocket and sockets:
            sockets[0].say({verb: chosen})
            self.read()
        else:
            done = {"finish": "finished", "requeue": "requeued", "touch": "touched"}[verb]
            answer = self.web.tell(verb, *chosen)
            assert answer[done] == len(good)
            assert {one["token"] for one in answer["failed"]} == set(chosen) - {one.token for one in good.values()}
            self.read()

    @rule(seconds=st.sampled_from((4.0, 11.0)))
    def wait(self, seconds: float) -> None:
        self.web.core.now += seconds
        for body, held in list(self.model.held.items()):
            if held.deadline <= self.web.core.now:  # by more than a sixteenth of a second, if at all
                self.give_back(body)
        self.web.pump.wake()
        self.web.turn()
        self.read()

    # -- the model

    def give_back(self, body: str) -> None:
        self.old.append(self.model.held.pop(body).token)
        self.model.ready.add(body)

    def read(self) -> None:
        """Take what the broker has sent."""
        for poll in list(self.polls):
            messages = poll.messages
            if messages is not None:
                self.polls.remove(poll)
                self.take(messages, POLLS)
        for stream in self.streams:
            if isinstance(stream, EventSource):
                self.take(stream.messages(), stream)
            else:
                self.take([one for text in stream.read() for one in text.get("messages", ())], stream)

    def take(self, messages: list[Message], holder: Any) -> None:
        model = self.model
        for message in messages:
            body = message["body"]
            assert body in model.ready, "with one client at a time, and not when it is finished"
            model.ready.remove(body)
            model.attempts[body] += 1
            assert message["attempts"] == model.attempts[body]
            model.held[body] = Held(message["token"], holder, self.web.core.now + TIMEOUT)

    @invariant()
    def the_counts_are_the_models(self) -> None:
        assert self.web.counts == (len(self.model.ready), len(self.model.held))

    @invariant()
    def no_credit_is_exceeded(self) -> None:
        for stream in self.streams:
            assert sum(held.holder is stream for held in self.model.held.values()) <= CREDIT

    def teardown(self) -> None:
        if not hasattr(self, "web"):
            return
        for stream in list(self.streams):
            stream.browser.lose()
        for poll in self.polls:
            poll.lose()
        self.web.wait(2 * TIMEOUT)
        left = {message["body"] for message in self.web.take("&wait=0s&max=1000")}
        assert left == self.model.ready | set(self.model.held)


HttpConsumers.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHttpConsumers = HttpConsumers.TestCase
