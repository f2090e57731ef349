"""`nsqtw up`: nsqlookupd, nsqd and nsqadmin on this machine, as child processes, until Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from nsqtw.cli import PROGRAM
from nsqtw.cli.contexts import LOCAL_NSQD
from nsqtw.cli.failures import ExitCode
from nsqtw.cli.output import Document
from nsqtw.cli.session import Session
from nsqtw.errors import CommandError, OptionError
from nsqtw.options.addresses import MAX_PORT, join_host_port
from nsqtw.printing import is_stderr_terminal
from nsqtw.runtime.reactor import Reactor

KEPT_LINES = 10
_FLAG_LINES = 2
"""The lines of a daemon with a wrong flag: what is wrong, and where the flags are listed."""
_START = "from nsqtw.cli.child_main import main; main()"
_LISTENING = re.compile(r"\b(TCP|HTTP): listening on (\S+)")
_FATAL = re.compile(r"\b(?:FATAL|ERROR): (?P<text>.*)")
_STOP_SECONDS = 60.0
_SIGNALS_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
"""What a daemon has logged before does not explain them."""
_MAKE_VARIABLE = "NSQTW_MAKE_RUN"
"""Set by `make run`, whose words a remedy must name."""
_ALL_PORTS = {False: "--port", True: "'make run PORT=5150'"}
_WILDCARDS = ("0.0.0.0", "::")


class Child(ProcessProtocol):
    """
    A daemon. `listeners` are the kinds of addresses (TCP, HTTP) that it listens on when it is ready; `on_line` gets
    each line of its log.
    """

    def __init__(
        self, reactor: Reactor, name: str, function: str, flags: Sequence[str], listeners: Sequence[str],
        on_line: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.addresses: dict[str, str] = {}
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.exit_text = ""
        """The end in words, empty while it runs."""
        self.signal = ""
        """The name of the signal that ended it, empty for none."""
        self._reactor = reactor
        self._listeners = listeners
        self._on_line = on_line
        self._rest = b""
        self._ready: Deferred[None] = Deferred()
        self._waiting_for_end: list[Deferred[None]] = []
        words = [sys.executable, "-c", _START, function, str(os.getpid()), *flags]
        IReactorProcess(reactor).spawnProcess(self, sys.executable, words, env=None, childFDs={0: "w", 1: "r", 2: "r"})

    def ready(self) -> Deferred[None]:
        """Wait until it listens. CommandError when it ends before."""
        return self._ready

    def ended(self) -> Deferred[None]:
        """Wait for its end. The wait may be cancelled."""
        done: Deferred[None] = Deferred()
        if self.exit_text:
            done.callback(None)
        else:
            self._waiting_for_end.append(done)
        return done

    async def stop(self, seconds: float) -> None:
        """End it with SIGTERM, and after so many seconds with SIGKILL."""
        if self.exit_text:
            return
        self._signal(signal.SIGTERM)
        timer = self._reactor.callLater(seconds, self._signal, signal.SIGKILL)
        await self.ended()
        if timer.active():
            timer.cancel()

    @property
    def cause(self) -> str:
        """The last error in its log; without one its last line, or the first of what it says of a wrong flag."""
        errors = [match["text"] for match in map(_FATAL.search, self.lines) if match]
        if errors:
            return errors[-1]
        if not self.lines:
            return "no output"
        return self.lines[0 if len(self.lines) <= _FLAG_LINES else -1]

    # -- from Twisted

    def connectionMade(self) -> None:
        """ProcessProtocol API"""
        self.transport.closeStdin()  # type: ignore[union-attr]

    def outReceived(self, data: bytes) -> None:
        """ProcessProtocol API"""
        self.errReceived(data)

    def errReceived(self, data: bytes) -> None:
        """ProcessProtocol API"""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._received(line.decode("utf-8", "replace"))

    def processEnded(self, reason: Failure) -> None:
        """ProcessProtocol API"""
        if self._rest:
            self._received(self._rest.decode("utf-8", "replace"))
        value: Any = reason.value
        if value.signal is not None:
            self.signal = signal.Signals(value.signal).name
            self.exit_text = f"was ended by {self.signal}"
        else:
            self.exit_text = f"ended with exit code {value.exitCode}"
        if not self._ready.called:
            self._ready.errback(CommandError(f"{self.name} does not start: {self.cause}"))
        waiting, self._waiting_for_end = self._waiting_for_end, []
        for done in waiting:
            if not done.called:
                done.callback(None)

    def _received(self, line: str) -> None:
        self.lines.append(line)
        self._on_line(self.name, line)
        match = _LISTENING.search(line)
        if match is None:
            return
        self.addresses.setdefault(match[1], match[2])
        if not self._ready.called and all(kind in self.addresses for kind in self._listeners):
            self._ready.callback(None)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess(number.name.removeprefix("SIG"))  # type: ignore[union-attr]


@attrs.frozen
class Ports:
    """The ports of the daemons; 0 for any free one."""

    nsqd_tcp: int
    nsqd_http: int
    lookupd_tcp: int
    lookupd_http: int
    admin: int

    @classmethod
    def from_base(cls, base: int) -> Ports:
        """Return NSQ's ports, moved so that nsqd's TCP port is `base`; all any free ones for 0."""
        return cls(*(base + distance if base else 0 for distance in (0, 1, 10, 11, 21)))


@attrs.frozen(kw_only=True)
class _Plan:
    """Addresses, data path and daemons to start."""

    host: str
    data_path: str
    ports: Ports
    has_lookupd: bool
    has_admin: bool
    nsqd_flags: Sequence[str]

    def listen_flags(self, tcp: int, http: int) -> list[str]:
        return [f"--tcp-address={join_host_port(self.host, tcp)}", f"--http-address={join_host_port(self.host, http)}"]


async def up(
    session: Session,
    data_path: str,
    address: str,
    port: int,
    nsqd_flag: tuple[str, ...],
    without_lookupd: bool,
    without_admin: bool,
    verbose: bool,
    **ports: int | None,
) -> int:
    """`nsqtw up`. Ctrl-C is its end."""
    chosen = attrs.evolve(
        Ports.from_base(port), **{name: number for name, number in ports.items() if number is not None}
    )
    plan = _Plan(
        host=address,
        data_path=os.path.abspath(data_path),
        ports=chosen,
        has_lookupd=not without_lookupd,
        has_admin=not without_admin,
        nsqd_flags=nsqd_flag,
    )
    _check(plan)
    children: list[Child] = []
    try:
        await _start(session, plan, children, verbose)
        await DeferredList([child.ended() for child in children], fireOnOneCallback=True, consumeErrors=True)
    except CancelledError:
        pass
    finally:
        ended = next((child for child in children if child.exit_text), None)
        if ended is None and is_stderr_terminal():  # the line has ^C on it
            session.say("")
        for child in reversed(children):
            with suppress(CancelledError):
                await child.stop(_STOP_SECONDS)
    if ended is not None:
        lines = ended.lines if ended.signal not in _SIGNALS_FROM_OUTSIDE else ()
        if not lines:
            raise CommandError(f"{ended.name} {ended.exit_text}; the others are stopped")
        session.say(f"{ended.name} {ended.exit_text}; its last lines:")
        for line in lines:
            session.say(f"{ended.name} | {line}")
        raise CommandError(f"{ended.name} {ended.exit_text}; its last lines are above, and the others are stopped")
    if is_stderr_terminal():
        session.say("stopped")
    return ExitCode.DONE


async def _start(session: Session, plan: _Plan, children: list[Child], is_verbose: bool) -> None:
    """Start all, one after the other, and tell the user where they are."""
    width = len("nsqlookupd")

    def tell(name: str, line: str) -> None:
        if is_verbose:
            session.say(f"{name:<{width}} | {line}")

    async def start(name: str, function: str, flags: list[str], listeners: Sequence[str]) -> Child:
        child = Child(session.reactor, name, function, flags, listeners, tell)
        children.append(child)
        await child.ready()
        if not session.output.is_json:
            session.output.show(Document({}, [f"{name:<{width}}  {_addresses_text(child)}"]))
        return child

    ports, flags = plan.ports, [f"--data-path={plan.data_path}", *plan.nsqd_flags]
    if plan.host not in _WILDCARDS:
        flags.append(f"--broadcast-address={plan.host}")
    lookupd: Child | None = None
    if plan.has_lookupd:
        listen = plan.listen_flags(ports.lookupd_tcp, ports.lookupd_http)
        lookupd = await start("nsqlookupd", "nsqtw.tap_lookupd:main_nsqlookupd", listen, ("TCP", "HTTP"))
        flags.append(f"--lookupd-tcp-address={_reached(lookupd.addresses['TCP'])}")
    listen = plan.listen_flags(ports.nsqd_tcp, ports.nsqd_http)
    nsqd = await start("nsqd", "nsqtw.tap:main_nsqd", [*listen, *flags], ("TCP", "HTTP"))
    if plan.has_admin:
        flag, asked = ("nsqd", nsqd) if lookupd is None else ("lookupd", lookupd)
        admin_flags = [
            f"--http-address={join_host_port(plan.host, ports.admin)}",
            f"--{flag}-http-address={_reached(asked.addresses['HTTP'])}",
        ]
        await start("nsqadmin", "nsqtw.tap_admin:main_nsqadmin", admin_flags, ("HTTP",))
    if session.output.is_json:
        session.output.show(Document({child.name: _addresses(child) for child in children}))
    else:
        session.output.show(Document({}, _hints(plan, {child.name: child for child in children})))


def _hints(plan: _Plan, children: dict[str, Child]) -> list[str]:
    """Return lines about what can be done now."""
    program = PROGRAM if shutil.which(PROGRAM) else os.path.relpath(sys.argv[0])
    nsqd = _reached(children["nsqd"].addresses["HTTP"])
    option = "" if nsqd == LOCAL_NSQD else f" --nsqd-http-address {nsqd}"
    admin = children.get("nsqadmin")
    return [
        "",
        f"messages are in {plan.data_path}",
        *([f"the page is at http://{_reached(admin.addresses['HTTP'])}"] if admin is not None else []),
        "in another terminal:",
        f"  {program} pub greetings 'hello world'{option}",
        f"  {program} tail greetings archive{option}",
        "Ctrl-C stops everything",
    ]


def _check(plan: _Plan) -> None:
    """Check the data path and the ports before anything is started. OptionError, CommandError."""
    ports = attrs.asdict(plan.ports)
    wrong = [number for number in ports.values() if not 0 <= number <= MAX_PORT]
    if wrong:
        raise OptionError(f"port {wrong[0]} is not between 1 and {MAX_PORT}: choose another --port")
    try:
        os.makedirs(plan.data_path, exist_ok=True)
    except OSError as error:
        is_file = os.path.isfile(plan.data_path)
        reason = "is a file; give a directory" if is_file else (error.strerror or str(error)).lower()
        raise OptionError(f"--data-path {plan.data_path}: {reason}") from error
    for name, number in ports.items():
        is_used = plan.has_lookupd if name.startswith("lookupd") else plan.has_admin if name == "admin" else True
        if number and is_used:
            _check_port(plan.host, number, name)


def _check_port(host: str, port: int, name: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError as error:
            what = f"--{name.replace('_', '-')}-port"
            raise CommandError(
                f"{join_host_port(host, port)}: {(error.strerror or str(error)).lower()};"
                f" {what} chooses another, and {_ALL_PORTS[bool(os.environ.get(_MAKE_VARIABLE))]} other ones for all"
            ) from error


def _reached(address: str) -> str:
    """Return an address of a listener as a program on this machine connects to it."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return join_host_port({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port))


def _addresses(child: Child) -> dict[str, Any]:
    return {f"{kind.lower()}_address": _reached(address) for kind, address in child.addresses.items()}


def _addresses_text(child: Child) -> str:
    parts = []
    if "TCP" in child.addresses:
        parts.append(f"tcp {_reached(child.addresses['TCP'])}")
    if "HTTP" in child.addresses:
        parts.append(f"http://{_reached(child.addresses['HTTP'])}")
    return "  ".join(parts)
