"""A reactor of its own for a test of coroutines on Twisted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor
from twisted.python.failure import Failure

from tests.reactors import close_reactor

TEST_SECONDS = 60.0
"""Time after which a test fails."""

V = TypeVar("V")


def run(test: Callable[[Any], Coroutine[Any, Any, V]]) -> V:
    """Run a test, which gets the reactor, to its end. The result."""
    reactor: Any = EPollReactor()  # type: ignore[no-untyped-call]
    outcome: list[Any] = []

    def begin() -> None:
        done = Deferred.fromCoroutine(test(reactor))
        done.addTimeout(TEST_SECONDS, reactor)
        done.addBoth(outcome.append)
        # In the turn after: a connection that was aborted is closed in the next one.
        done.addBoth(lambda _: reactor.callLater(0, reactor.stop))

    reactor.callWhenRunning(begin)
    # TLS of Twisted has timers in the reactor of the process.
    with patch("twisted.protocols.tls._get_default_clock", return_value=reactor):
        reactor.run(installSignalHandlers=False)
    close_reactor(reactor)
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    found: V = result
    return found
