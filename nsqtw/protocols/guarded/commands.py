"""
The order of the commands of one connection.

Theory of operation. A command is checked (names, sizes, limits), then the rights of the connection are looked up by
the same `ClientAuth` that V2 uses, and only then is it executed. When rights have ended they are asked for again; the
command and all later ones wait in a queue meanwhile, so the order stays. Each command is told once what became of it.

Performance: called once per command.
"""

# mypyc: compiled

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from nsqtw.core.timers import Timer
from nsqtw.errors import ClientError
from nsqtw.protocols.session import STEP_BYTES
from nsqtw.protocols.v2_auth import ClientAuth
from nsqtw.rights import Answer, Authorizations, Credentials, Rights, RightsListener

MAX_WAITING: Final = STEP_BYTES
"""Maximum of waiting commands. While commands wait, no input is read; a step has no more commands than bytes."""


class Command:
    """One command, with what V2 would call it. Names that are not valid were refused before."""

    __slots__ = ("channel", "topic", "verb")
    verb: bytes
    topic: str
    channel: str

    def execute(self) -> None:
        """It is allowed. ClientError."""
        raise NotImplementedError

    def refuse(self, error: ClientError) -> None:
        """It is not, or it failed."""
        raise NotImplementedError


class CommandQueue:
    """The commands of a connection. `now` is the time of the last one, `log_refusal` writes a line."""

    def __init__(self, log_refusal: Callable[[ClientError], None], now: float) -> None:
        self.now = now
        self._client_auth: ClientAuth | None = None
        """None: everything is allowed."""
        self._is_open = True
        """Whether everything is allowed, and the connection has not ended."""
        self._waits = 0
        """The reasons of `protocols.client` for which commands wait."""
        self.end: ClientError | None = None
        """Why the connection may do nothing any more."""
        self._log_refusal = log_refusal
        self._queue: deque[Command] = deque()
        self._current: Command | None = None
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        """Whether everything is allowed and nothing waits: a command may be executed at once."""
        return self._is_open and not (self._waits or self._queue or self._is_running)

    @property
    def is_waiting(self) -> bool:
        """Whether there is a reason to wait."""
        return self._waits != 0

    def wait(self, reason: int) -> None:
        """Let commands wait, for one more reason."""
        self._waits |= reason

    def go_on(self, reason: int) -> None:
        """One reason less."""
        self._waits &= ~reason

    def take(self, command: Command, now: float) -> None:
        """Execute a command, behind all that wait. ClientError when too many wait, or when it failed at once."""
        self.now = now
        if self.is_idle:
            command.execute()
            return
        if len(self._queue) >= MAX_WAITING:
            raise ClientError("E_INVALID", "too many commands wait")
        self._queue.append(command)
        self.run()

    def run(self) -> None:
        """Execute what waits, in order, as long as the rights are known."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while not self._waits:
                command = self._current or (self._queue.popleft() if self._queue else None)
                if command is None:
                    return
                self._attempt(command)
        finally:
            self._is_running = False

    def ask(self, client_auth: ClientAuth) -> None:
        """Look up the rights of each command from now on."""
        self._client_auth = client_auth
        self._is_open = False

    def refuse_current(self, error: ClientError) -> None:
        """The rights that a command waits for are not given: it and all later ones are refused."""
        current, self._current = self._current, None
        self.end, self._is_open = error, False
        if current is not None:
            current.refuse(error)

    def close(self) -> None:
        """The connection has ended."""
        if self.end is None:
            self.end = ClientError("E_INVALID", "the connection has ended")
        self._is_open = False
        self._queue.clear()
        self._current = None
        self._client_auth = None

    def _attempt(self, command: Command) -> None:
        self._current = command
        try:
            if self.end is not None:
                raise ClientError(self.end.code, self.end.description)
            client_auth = self._client_auth
            if client_auth is not None:
                names = (command.topic.encode(), command.channel.encode())
                client_auth.take_parked()
                now = max(self.now, client_auth.now())
                if client_auth.must_wait(command.verb, names, [], names[1], now):
                    return
            command.execute()
        except ClientError as error:
            self._log_refusal(error)
            command.refuse(error)
        if self._current is command:
            self._current = None


class NotifyingAuthorizations:
    """An `Authorizations` that calls `after` when an answer has been given."""

    def __init__(self, authorizations: Authorizations, after: Callable[[], None]) -> None:
        self._authorizations = authorizations
        self._after = after
        self.allows = authorizations.allows
        self.now = authorizations.now

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """Authorizations API."""

        def answered(outcome: Rights | Exception) -> None:
            answer(outcome)  # type: ignore[arg-type]
            self._after()

        return self._authorizations.ask(credentials, answered)

    def enter(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self._authorizations.enter(listener)

    def leave(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self._authorizations.leave(listener)


class Call(Timer):
    """Calls a function when it is due."""

    def __init__(self, call: Callable[[float], None]) -> None:
        super().__init__()
        self._call = call

    def on_timer(self, now: float) -> float | None:
        """Timer API."""
        self._call(now)
        return None
