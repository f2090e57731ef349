"""
All subscriptions of a broker over HTTP, and the commands of their clients about messages.

Subscriptions have numbers, which their tokens name. A poll that waits, a stream and a WebSocket are subscribers, of
which --max-http-subscribers may be there; polls of one channel share a subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from nsqtw.api.context import ApiContext
from nsqtw.api.subscribe.right import StandingRight
from nsqtw.api.subscribe.subscription import Reader, Source, Subscription, http_client, subscribe_failed
from nsqtw.api.subscribe.tokens import Token, Tokens
from nsqtw.errors import ClientError
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, Refused, failure

_TOO_MANY = failure(503, "TOO_MANY_SUBSCRIBERS")
INVALID_TOKEN, NOT_IN_FLIGHT = "INVALID_TOKEN", "NOT_IN_FLIGHT"
"""Why nothing was done for a token: it is none of this process and channel; its delivery is over."""

Failed = list[dict[str, str]]
"""The tokens for which nothing was done: `token`, and `error`."""


class Subscribers:
    """The subscriptions of one broker."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.broker = context.broker
        self.pump = context.pump
        self._tokens = Tokens()
        self._subscriptions: dict[int, Subscription] = {}
        self._last = 0
        self._counts = context.view.http_consumers

    @property
    def count(self) -> int:
        """The number of subscriptions."""
        return len(self._subscriptions)

    def enter(self, request: HttpRequest, kind: str) -> None:
        """A subscriber comes, until `leave`. `kind` is that of the metrics. Refused."""
        if self._counts.count >= self.broker.options.max_http_subscribers:
            self.context.limits.rejections.record("max-http-subscribers", request.client)
            raise Refused(_TOO_MANY)
        self._counts.subscribers[kind] += 1

    def leave(self, kind: str) -> None:
        """A subscriber has left."""
        self._counts.subscribers[kind] -= 1

    def count_delivered(self, kind: str, count: int) -> None:
        """Messages were sent to a subscriber."""
        self._counts.delivered[kind] += count

    def new(self, source: Source, request: HttpRequest, reader: Reader) -> Subscription:
        """Return a subscription by the client of `request`, which is to `join`."""
        self._last += 1
        client = http_client(request, self.broker, self.pump.now())
        return Subscription(self.broker, self._tokens, self._last, source, client, reader, self._left)

    def join(self, one: Subscription) -> None:
        """Begin a subscription. Refused."""
        try:
            one.join(self.pump.now())
        except ClientError as error:
            raise Refused(subscribe_failed(error)) from None
        self._subscriptions[one.number] = one
        self.pump.wake()

    def standing_right(
        self, request: HttpRequest, source: Source, withdrawn: Callable[[Answer], None]
    ) -> StandingRight | None:
        """Return the right of a request that lasts; None where nobody needs one."""
        bearer_auth = self.context.bearer_auth
        if bearer_auth is None:
            return None
        return StandingRight(self.broker, bearer_auth, request.credentials, source.topic, source.channel, withdrawn)

    # -- messages

    def finish(self, topic: str, channel: str, tokens: Iterable[str]) -> tuple[int, Failed]:
        """Finish messages of a channel. Returns how many, and the failed tokens."""
        return self._each(topic, channel, tokens, partial(Subscription.finish, now=self.pump.now()))

    def requeue(self, topic: str, channel: str, tokens: Iterable[str], delay: float) -> tuple[int, Failed]:
        """Have messages of a channel delivered again after `delay` seconds. Returns how many, and the failed tokens."""
        return self._each(topic, channel, tokens, partial(Subscription.requeue, delay=delay, now=self.pump.now()))

    def touch(self, topic: str, channel: str, tokens: Iterable[str]) -> tuple[int, Failed]:
        """Restart the timeouts of messages of a channel. Returns how many, and the failed tokens."""
        return self._each(topic, channel, tokens, partial(Subscription.touch, now=self.pump.now()))

    def _each(
        self,
        topic: str,
        channel: str,
        tokens: Iterable[str],
        act: Callable[[Subscription, Token], ClientError | None],
    ) -> tuple[int, Failed]:
        """Do `act` for each token. The first failure is logged, with their number."""
        count, failed = 0, Failed()
        refused: tuple[Subscription, ClientError] | None = None
        for text in tokens:
            token = self._tokens.read(text)
            one = None if token is None else self._subscriptions.get(token.subscription)
            if token is None or (one is not None and (one.source.topic, one.source.channel) != (topic, channel)):
                failed.append({"token": text, "error": INVALID_TOKEN})
                continue
            error = None if one is None else act(one, token)
            if one is None or error is not None:
                failed.append({"token": text, "error": NOT_IN_FLIGHT})
                if one is not None and error is not None:
                    refused = refused or (one, error)
            else:
                count += 1
        if refused is not None:
            one, error = refused
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            one.log_refusal(
                ClientError(error.code, error.description, fatal=False, logged=f"{error.description}{more}")
            )
        self.pump.wake()
        return count, failed

    def _left(self, one: Subscription) -> None:
        self._subscriptions.pop(one.number, None)
