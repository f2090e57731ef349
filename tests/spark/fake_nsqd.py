"""An nsqd's HTTP side in a thread: takes /pub and /mpub?binary=true, and misbehaves as a test asks it to."""

import enum
import ssl
import struct
import threading
from collections import defaultdict, deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.spark.http_thread import HttpThread

_INT32 = struct.Struct(">i")


class Misbehaviour(enum.Enum):
    """What may happen to a request instead of being taken and answered 200 OK."""

    DROP = "close the connection, nothing taken"
    TAKE_AND_DROP = "take the messages, then close without an answer"
    SILENCE = "take the messages and never answer"
    HALF_AN_ANSWER = "take the messages and never finish the answer's body"


#: A status and a body, which refuse the request.
Answer = tuple[int, bytes]


def unpack(body: bytes) -> list[bytes]:
    """The messages in the body of a binary /mpub; the body must hold them exactly."""
    (count,) = _INT32.unpack_from(body)
    messages = []
    offset = _INT32.size
    for _ in range(count):
        (size,) = _INT32.unpack_from(body, offset)
        offset += _INT32.size
        messages.append(body[offset : offset + size])
        offset += size
    assert count > 0 and all(messages) and offset == len(body)
    return messages


class FakeNsqd(HttpThread):
    """Records what it takes. `script` holds what to do with the next requests, one entry for each; None takes it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.script: deque[Answer | Misbehaviour | None] = deque()
        self.messages: defaultdict[str, list[bytes]] = defaultdict(list)
        self.deferred: list[tuple[str, bytes, int]] = []
        self.batches: list[int] = []
        self.requests = 0
        self.connections = 0
        self.closed = 0
        self.authorizations: set[str | None] = set()
        self.at_once = 0
        self.most_at_once = 0
        #: A client that was kept waiting has closed the connection.
        self.hung_up = threading.Event()
        self._lock = threading.Lock()
        server = _Server(("127.0.0.1", 0), _Handler)
        server.nsqd = self
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        super().__init__(server, "https://" if tls else "")

    def next_step(self) -> Answer | Misbehaviour | None:
        with self._lock:
            self.requests += 1
            return self.script.popleft() if self.script else None

    def take(self, path: str, body: bytes) -> None:
        target = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(target.query).items()}
        with self._lock:
            if target.path == "/pub":
                self.deferred.append((query["topic"], body, int(query["defer"])))
                return
            assert target.path == "/mpub" and query["binary"] == "true"
            taken = unpack(body)
            self.messages[query["topic"]] += taken
            self.batches.append(len(taken))

    def count(self, change: int) -> None:
        with self._lock:
            self.at_once += change
            self.most_at_once = max(self.most_at_once, self.at_once)


class _Server(ThreadingHTTPServer):
    nsqd: FakeNsqd
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up, or does not trust us, is no error of the server's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Without it every answer waits 40 ms for the client's delayed acknowledgement.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.nsqd.connections += 1

    def finish(self) -> None:
        super().finish()
        self.server.nsqd.closed += 1

    def do_GET(self) -> None:
        self._answer(404, b"NOT_FOUND")

    def do_POST(self) -> None:
        nsqd = self.server.nsqd
        nsqd.count(+1)
        nsqd.authorizations.add(self.headers["Authorization"])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        step = nsqd.next_step()
        if step is None or step in (
            Misbehaviour.TAKE_AND_DROP,
            Misbehaviour.SILENCE,
            Misbehaviour.HALF_AN_ANSWER,
        ):
            nsqd.take(self.path, body)
        nsqd.count(-1)
        if isinstance(step, Misbehaviour):
            self._misbehave(step)
        else:
            self._answer(*(step or (200, b"OK")))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _misbehave(self, how: Misbehaviour) -> None:
        self.close_connection = True
        if how is Misbehaviour.HALF_AN_ANSWER:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"O")
        if how in (Misbehaviour.SILENCE, Misbehaviour.HALF_AN_ANSWER):
            self._wait_for_hang_up()

    def _wait_for_hang_up(self) -> None:
        with suppress(ConnectionError):
            self.rfile.read(1)
        self.server.nsqd.hung_up.set()

    def log_message(self, format: str, *args: object) -> None:
        pass
