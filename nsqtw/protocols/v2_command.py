"""
Description of a V2 command: when and to whom it is allowed, what follows its line, how the log shows it, what carries
it out.

The table of all commands is in `protocols.v2`. The codec, the session and the trace read it.

Performance: once per command or run of commands.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nsqtw.core.client import ClientState

if TYPE_CHECKING:
    from nsqtw.protocols.v2_subscription import Subscriber

S = TypeVar("S")
"""The class of the sessions that carry out commands."""

ANY_STATE: Final = frozenset(ClientState)
CONSUMING: Final = frozenset({ClientState.SUBSCRIBED, ClientState.CLOSING})

# Bodies.
NO_BODY: Final = 0
DOCUMENT: Final = 1
"""int32 size and a JSON document or a secret."""
MESSAGE: Final = 2
"""int32 size and a message."""
MESSAGE_OF_RUN: Final = 3
"""The same; commands with the same line behind it, which has one parameter, are carried out together with it."""
MESSAGES: Final = 4
"""MPUB's body."""

Arguments = tuple[bytes, Sequence[bytes], list[bytes], float]
"""Verb, parameters, payload and the current time."""


class CommandSpec(Generic[S]):
    """
    One command. `states`: those of a session in which it is allowed; `check`: of the parameters, before a body is read;
    `right`: the permission that it needs, for the names that are its first parameters; `shown`: for each parameter the
    function that makes its text for the log. It is carried out by `handle`, or for a command of consumers by `consume`.
    """

    def __init__(
        self,
        states: frozenset[ClientState],
        handle: Callable[[S, bytes, Sequence[bytes], list[bytes], float], None] | None = None,
        *,
        consume: Callable[[Subscriber, bytes, Sequence[bytes], list[bytes], float], None] | None = None,
        check: Callable[[S, bytes, Sequence[bytes]], None] | None = None,
        right: str = "",
        body: int = NO_BODY,
        shown: tuple[Callable[[bytes], str], ...] = (),
        before_tls: bool = False,
    ) -> None:
        self.states = states
        self.handle = handle
        self.consume = consume
        self.check = check
        self.right = right
        self.body = body
        self.shown = shown
        self.before_tls = before_tls
        """Whether the client may send it before TLS where TLS is required."""


Commands = Mapping[bytes, CommandSpec[Any]]
