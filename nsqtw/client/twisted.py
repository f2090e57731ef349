"""Consumers and producers on Twisted."""

from __future__ import annotations

import builtins
import errno
from collections.abc import Callable, Coroutine
from socket import EAI_NONAME, gaierror
from typing import Any, TypeVar, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionDone,
    ConnectionRefusedError,
    DNSLookupError,
    TimeoutError,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from txaio import tx

from nsqtw.client.consumer import BaseConsumer
from nsqtw.client.event_loop import EventLoop, Receiver, Timer
from nsqtw.client.lookup import host_and_port
from nsqtw.client.nsqd_api import BaseNsqdApi
from nsqtw.client.producer import BaseProducer

T = TypeVar("T")


class _Protocol(Protocol):
    """Passes events of a transport on to a receiver, and is its Transport."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self._receiver.connected(self)

    def dataReceived(self, data: bytes) -> None:
        self._receiver.received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        text = "EOF" if reason.check(ConnectionDone) else reason.getErrorMessage()  # type: ignore[no-untyped-call]
        self._receiver.lost(text)

    def write(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]

    def close(self) -> None:
        self.transport.loseConnection()  # type: ignore[union-attr]

    def abort(self) -> None:
        self.transport.abortConnection()  # type: ignore[union-attr]


class _Timer:
    """A delayed call that may be cancelled at any time."""

    def __init__(self, call: IDelayedCall) -> None:
        self._call = call

    def cancel(self) -> None:
        if self._call.active():
            self._call.cancel()


def _ignore_cancellation(failure: Failure) -> None:
    failure.trap(CancelledError)  # type: ignore[no-untyped-call]


class TwistedLoop(EventLoop):
    """A reactor."""

    def __init__(self, reactor: IReactorTime | None = None) -> None:
        if reactor is None:
            from twisted.internet import reactor as global_reactor

            reactor = cast(IReactorTime, global_reactor)
        self._reactor = reactor
        tx.config.loop = cast(Any, reactor)  # txaio has one reactor for all of a process
        super().__init__(tx.with_config(reactor), tx.make_logger)  # type: ignore[no-untyped-call]

    def future(self) -> Deferred[Any]:
        # As txaio does it, with two calls less: a future is a third of a publish.
        return Deferred()

    def resolve(self, future: Deferred[Any], value: Any = None) -> bool:
        if future.called:
            return False
        future.callback(value)
        return True

    def now(self) -> float:
        return self._reactor.seconds()

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        return _Timer(self._reactor.callLater(seconds, function))

    def call_soon(self, function: Callable[[], object]) -> None:
        self._reactor.callLater(0, function)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
        return Deferred.fromCoroutine(coroutine)

    def cancel(self, future: Deferred[Any]) -> None:
        future.addErrback(_ignore_cancellation)
        future.cancel()

    def must_end(self, error: BaseException) -> bool:
        # A cancelled Deferred fails its coroutine with an ordinary error, and the reactor passes on no SystemExit.
        return isinstance(error, GeneratorExit)

    async def connect(self, host: str, port: int, receiver: Receiver, timeout: float, source: str) -> None:
        local = host_and_port(source) if source else None
        endpoint = HostnameEndpoint(self._reactor, host, port, timeout=timeout, bindAddress=local)
        try:
            await endpoint.connect(Factory.forProtocol(lambda: _Protocol(receiver)))
        except ConnectingCancelledError as error:
            raise CancelledError from error
        except ConnectionRefusedError as error:
            raise OSError(errno.ECONNREFUSED, "connection refused") from error
        except TimeoutError as error:
            raise builtins.TimeoutError("i/o timeout") from error
        except DNSLookupError as error:
            raise gaierror(EAI_NONAME, f"lookup {host}: no such host") from error
        except ConnectError as error:
            raise OSError(error.osError or 0, str(error)) from error


class Consumer(BaseConsumer):
    """A consumer on Twisted; see `BaseConsumer`."""

    def _make_loop(self) -> EventLoop:
        return TwistedLoop()


class Producer(BaseProducer):
    """A producer on Twisted; see `BaseProducer`."""

    def _make_loop(self) -> EventLoop:
        return TwistedLoop()


class NsqdApi(BaseNsqdApi):
    """The HTTP API of an nsqd on Twisted; see `BaseNsqdApi`."""

    def _make_loop(self) -> EventLoop:
        return TwistedLoop()
