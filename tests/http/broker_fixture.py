"""An HTTP edge with a whole broker behind it. The test owns time, the sockets' bytes, and when saving is done."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, eventAsText, globalLogPublisher
from twisted.python.failure import Failure

from nsqtw.api.site import broker_site
from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.group_commit import CommitBatch
from nsqtw.daemon.readiness import Readiness
from nsqtw.errors import BackendError
from nsqtw.http.connection import HttpConnection
from nsqtw.runtime.drain import Drain
from nsqtw.runtime.pump import Pump
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.runtime.storage_thread import perform
from nsqtw.stats.broker_families import BrokerView, ReplicaControl
from tests.core.harness import BrokerHarness

TCP_PORT, HTTP_PORT = 4150, 4151
VERSION_LINE = "nsqd v1.3.0 (built w/test)"
PEER = IPv4Address("TCP", "127.0.0.1", 40974)
LIMITS = {"max_msg_size": 10, "max_body_size": 40, "max_req_timeout": 60.0}
"""Options small enough for a test to exceed."""
OK = (200, "OK")
DONE = (200, "")
_LENGTH = re.compile(rb"(\r\ncontent-length: )[0-9]+(?=\r|$)", re.IGNORECASE)


class Reply:
    """One response. Header names are lower case."""

    def __init__(self, version: str, status: int, headers: dict[str, str], body: bytes) -> None:
        self.version = version
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """The word of an error, which has nothing beside it."""
        (message,) = self.json.values()
        assert isinstance(message, str)
        return message

    @property
    def outcome(self) -> tuple[int, str]:
        """The status, and the word of the error or the text of the success."""
        return self.status, self.message if self.status >= 400 else self.body.decode()


def replies(data: bytes, *, headless: bool = False) -> Iterator[Reply]:
    """Cut what a connection wrote into responses. `headless`: they answer HEAD and have no body."""
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = 0 if headless or status == "100" else int(headers["content-length"])
        yield Reply(version, int(status), headers, data[:length])
        data = data[length:]


class Writer:
    """The writer thread, without the thread: what it is given waits here until the test's turn, or longer."""

    def __init__(self, harness: BrokerHarness) -> None:
        self._world = harness
        self._jobs: list[tuple[CheckpointJob, Callable[[CheckpointJob, BackendError | None], None]]] = []
        self.is_held_back = False

    def save(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None:
        self._jobs.append((save, done))

    def commit(self, batch: CommitBatch, done: Callable[..., None]) -> None:
        done(batch, batch.commit(self._world.log))

    def work(self) -> bool:
        """Do what there is to do, unless held; whether there was anything."""
        if self.is_held_back or not self._jobs:
            return False
        save, done = self._jobs.pop(0)
        done(save, perform(save, self._world.positions, self._world.report))
        return True


def harness_pump(clock: Clock, harness: BrokerHarness, writer: Writer) -> Pump:
    """A pump in the time of its harness."""
    return Pump(clock, harness.broker, writer, lambda: harness.now)


class Web:
    """A broker with options, and its HTTP edge."""

    def __init__(self, **options: Any) -> None:
        self.core = BrokerHarness(**options)
        self.replica: ReplicaControl | None = None
        self._serve()

    def replicate(self, replica: ReplicaControl) -> None:
        """Serve as a broker with a replica store."""
        self.replica = replica
        self._serve()

    def crash(self) -> None:
        """The process is gone, after everything was saved; another one starts."""
        self.core.save()
        self.core.crash()
        self._serve()

    def _serve(self) -> None:
        self.clock = Clock()
        self.writer = Writer(self.core)
        self.pump = harness_pump(self.clock, self.core, self.writer)
        self.readiness = Readiness()
        self.drain = self.make_drain()
        self.lag = ReactorLag(self.clock)
        self.view = BrokerView(
            program="nsqd",
            readiness=self.readiness,
            lag=self.lag,
            broker=self.broker,
            now=self.pump.now,
            data_path="/",
            replica=self.replica,
        )
        self.site = broker_site(
            self.broker,
            self.pump,
            tcp_port=TCP_PORT,
            http_port=HTTP_PORT,
            version_line=VERSION_LINE,
            view=self.view,
            drain=self.drain,
        )

    def make_drain(self) -> Drain:
        return Drain(self.broker, self.pump)

    @property
    def broker(self) -> Broker:
        return self.core.broker

    def turn(self) -> None:
        """Reactor turns until nothing is left to do."""
        self.clock.advance(0)
        while self.writer.work() or self.broker.to_commit:
            self.clock.advance(0)
        self.clock.advance(0)

    def connect(self, peer: IAddress = PEER) -> Browser:
        return Browser(self, StringTransport(peerAddress=peer))

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        """One request on a connection of its own."""
        return self.connect().ask(method, target, body, **headers)

    def get(self, target: str) -> Reply:
        return self.ask("GET", target)

    def post(self, target: str, body: bytes = b"") -> Reply:
        return self.ask("POST", target, body)

    def bodies(self, topic: str = "t") -> list[bytes]:
        """What a new consumer of the topic is given."""
        return self.core.reader(topic=topic).bodies()

    def fail_commits(self, text: str = "no space") -> None:
        """From now on nothing can be stored."""
        self.core.backend.commit = lambda writes, durable: {queue: BackendError(text) for queue, _ in writes}


class Browser:
    """One connection to a Web."""

    def __init__(self, web: Web, transport: StringTransport) -> None:
        self.web = web
        self.transport = transport
        connection = web.site.buildProtocol(None)
        assert isinstance(connection, HttpConnection)
        self.connection = connection
        connection.makeConnection(self.transport)

    @property
    def is_closed(self) -> bool:
        """Whether the edge has closed the connection."""
        return self.transport.disconnecting

    def send(self, data: bytes) -> None:
        self.connection.dataReceived(data)

    def read(self, *, headless: bool = False) -> list[Reply]:
        """What was answered since the last time, after a turn."""
        self.web.turn()
        data = self.transport.value()
        self.transport.clear()
        return list(replies(data, headless=headless))

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        """One request and its answer."""
        self.send(request(method, target, body, **headers))
        (reply,) = self.read(headless=method == "HEAD")
        return reply

    def lose(self) -> None:
        """The client is gone."""
        self.connection.connectionLost(Failure(ConnectionDone()))


def request(method: str, target: str, body: bytes = b"", version: str = "HTTP/1.1", **headers: str) -> bytes:
    """A request as bytes. Header names are given with underscores."""
    fields = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body or method == "POST":
        fields.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def chunked(method: str, target: str, *chunks: bytes) -> bytes:
    """A request whose body is sent in chunks."""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


class Log:
    """The lines that are logged while it is entered, each as `level: text`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __enter__(self) -> list[str]:
        globalLogPublisher.addObserver(self._observe)
        return self.lines

    def __exit__(self, *_: object) -> None:
        globalLogPublisher.removeObserver(self._observe)

    def _observe(self, event: LogEvent) -> None:
        text = eventAsText(event, includeTimestamp=False, includeSystem=False, includeTraceback=False)
        self.lines.append(f"{event['log_level'].name}: {text}")


def teach(web: Web, data: bytes) -> None:
    """If `data` starts with the head of a publish, let `web` have read it before: from clients that left then."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if end and head.startswith((b"POST /pub", b"POST /mpub")) and _LENGTH.search(head):
        web.site.bearer_auth, authorizations = None, web.site.bearer_auth
        for _ in range(2):
            teacher = web.connect()
            teacher.connection.dataReceived(_LENGTH.sub(rb"\g<1>1", head) + end)
            teacher.lose()
        web.site.bearer_auth = authorizations
