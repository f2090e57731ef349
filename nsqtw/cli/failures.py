"""Errors of a cluster in the words of the command line: what kind of failure it is, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nsqtw.cli.contexts import LOCAL_NSQD
from nsqtw.cli.exit_codes import REFUSALS
from nsqtw.errors import (
    ClusterError,
    CommandError,
    ConnectFailed,
    NoServerAnswered,
    NotFound,
    NsqtwError,
    PermissionRefused,
    UnknownObject,
    Unsupported,
)

_STATUS = re.compile(r"got response (\d{3}) ")
_WORD = re.compile(r'\\?"message\\?":\s*\\?"([A-Z_]+)\\?"')
_NO_CONNECTION = re.compile(r'^(?:Get|Post) "(?P<url>[^"]*)": (?:dial tcp \S+ )?(?P<why>.*)$', re.DOTALL)
_REMEDIES = {
    "CREDENTIAL_REQUIRED": "the node wants a secret: give it with --secret-file, or in a context",
    "CREDENTIAL_REFUSED": "the node does not know the secret",
    "FORBIDDEN": "the secret has no permission for this",
    "TLS_REQUIRED": "the node wants TLS: give an https:// address, and the TLS files in a context",
    "TOPIC_NOT_FOUND": "the topic does not exist",
    "CHANNEL_NOT_FOUND": "the channel does not exist",
    "MESSAGE_NOT_FOUND": "the message does not exist, or is not kept any more",
    "INVALID_TO": "TO must be earliest, latest, a time or the id of a message",
    "INVALID_TOPIC": "no topic can have this name",
    "INVALID_CHANNEL": "no channel can have this name",
    "EPHEMERAL_CHANNEL": "an ephemeral channel has no place in the log and keeps no messages to look at",
}
_LOCAL_HINT = "; 'nsqtw up' starts a cluster here, and --nsqd-http-address or a context names another"


def explained(error: NsqtwError) -> NsqtwError:
    """Return the error with the exit code and the text for the user."""
    if isinstance(error, UnknownObject):
        return NotFound(str(error))
    if not isinstance(error, ClusterError):
        return error
    causes = error.errors if isinstance(error, NoServerAnswered) else (error,)
    if causes and all(isinstance(cause, Unsupported) for cause in causes):
        return CommandError("the nodes cannot do this: it needs nsqd of nsqtw, in this version or a later one")
    program = error.program if isinstance(error, NoServerAnswered) else ""
    return failure_of(map(str, causes), program)


def topic_not_found(topic: str) -> NotFound:
    """Return the error for a topic that no node has."""
    return NotFound(f"no node has a topic {topic!r}; 'nsqtw topic list' shows them")


def failure_of(texts: Iterable[str], program: str = "") -> NsqtwError:
    """Return the error for texts of the cluster, none of which is a success."""
    lines = [line for text in texts for line in text.split("\n") if line]
    if not lines:
        return NotFound(f"no {program or 'node'} answered: none is registered" if program else "no node was found")
    shown = "; ".join(dict.fromkeys(map(readable, lines)))
    statuses = {int(match[1]) for match in map(_STATUS.search, lines) if match}
    if not statuses.isdisjoint(REFUSALS):
        return PermissionRefused(shown)
    if statuses == {404}:
        return NotFound(shown)
    if statuses:
        return CommandError(shown)
    hint = _LOCAL_HINT if any(LOCAL_NSQD in line for line in lines) else ""
    return ConnectFailed("", f"cannot connect{f' to {program}' if program else ''}: {shown}{hint}")


def readable(text: str) -> str:
    """Return a text of the cluster for a person: the cause and the remedy instead of Go's wrapping."""
    word = _WORD.search(text)
    if word:
        return f"{_REMEDIES[word[1]]} ({word[1]})" if word[1] in _REMEDIES else word[1]
    unconnected = _NO_CONNECTION.match(text)
    if unconnected:
        server = unconnected["url"].partition("://")[2].partition("/")[0]
        return f"{server}: {unconnected['why'].removeprefix('connect: ')}"
    return text
