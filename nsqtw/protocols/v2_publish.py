"""
A publish: its delay, and its reply. It is the waiter that gets the result of the commit.

Performance: called once per publish command or run of them.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols.frames import OK
from nsqtw.protocols.parameters import checked_name, decimal, duration_ns, need_names, unparsed
from nsqtw.protocols.replies import Replies, ReplySlot

if TYPE_CHECKING:
    from nsqtw.protocols.v2_session import V2Session


class Publish(ReplySlot):
    """
    The place of the reply to one command, or to a run of PUBs, of `session`: `message_count` messages for `topic`.
    `commits_async`: it is answered after this turn.
    """

    __slots__ = ("_message_count", "_session", "_topic", "_verb", "commits_async")

    def __init__(self, session: V2Session, replies: Replies, verb: bytes, topic: str, message_count: int) -> None:
        super().__init__(replies)
        self.commits_async = False
        self._session = session
        self._verb = verb
        self._topic = topic
        self._message_count = message_count

    def on_commit(self, error: Exception | None) -> None:
        """Reply with the result of the commit."""
        if self.commits_async:
            self._session.async_count -= 1
        if error is None:
            self._session.published.add(self._topic, self._message_count)
            # A run of PUBs is one publish with a reply for each.
            count = self._message_count if self._verb == b"PUB" else 1
            self.set(OK * count, count=count)
        else:
            verb = self._verb.decode()
            failure = ClientError(f"E_{verb}_FAILED", f"{verb} failed {error}")
            self.set(self._session.error_frame(failure), is_last=True)


def check_publish(verb: bytes, params: Sequence[bytes], options: Options) -> None:
    """Check PUB, MPUB or DPUB before the body is read. ClientError."""
    need_names(verb, params, 2 if verb == b"DPUB" else 1)
    code = "E_BAD_TOPIC E_BAD_TOPIC" if verb == b"MPUB" else "E_BAD_TOPIC"
    checked_name(params[0], code, f"{verb.decode()} topic name")
    if verb == b"DPUB":
        delay_ms_of(params[1], options)


def delay_ms_of(parameter: bytes, options: Options) -> int:
    """The delay of a DPUB. ClientError."""
    number = decimal(parameter)
    if number is None:
        raise unparsed("DPUB could not parse timeout", parameter)
    longest_ns = round(options.longest_delay * 1e9)
    if not 0 <= duration_ns(number) <= longest_ns:
        text = f"DPUB timeout {number} out of range 0-{longest_ns // 10**6}"
        raise ClientError("E_INVALID", text)
    return duration_ns(number) // 10**6
