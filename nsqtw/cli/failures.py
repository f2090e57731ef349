"""Errors in the words of the command line: the kind of failure, its exit code, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum

from nsqtw.cli.contexts import LOCAL_NSQD
from nsqtw.errors import (
    AuthError,
    ClientLibraryError,
    ClusterError,
    CommandError,
    ConnectFailed,
    NoServerAnswered,
    NotConnected,
    NotFound,
    NsqtwError,
    OptionError,
    PermissionRefused,
    UnknownObject,
    Unsupported,
)

REFUSALS = (401, 403)
"""The statuses of an answer that refuses the credentials."""
_STATUS = re.compile(r"got response (\d{3}) ")
_WORD = re.compile(r'\\?"message\\?":\s*\\?"([A-Z_]+)\\?"')
_DIALED = re.compile(r"^dial tcp (?P<server>\S+): (?:connect: )?(?P<why>.*)$", re.DOTALL)
_ASKED = re.compile(r"^https?://(?P<server>[^/\s]+)/\S*: (?:dial tcp \S+: )?(?P<why>.*)$", re.DOTALL)
_NO_HTTP_START = "the answer is no HTTP"
_NO_CONNECTION = re.compile(r'^(?:Get|Post|Put) "(?P<url>[^"]*)": (?:dial tcp \S+ )?(?P<why>.*)$', re.DOTALL)
_DEFER_LIMIT = "--defer is at most nsqd's --max-req-timeout, which is 1h by default"
_REMEDIES = {
    "CREDENTIAL_REQUIRED": "the node wants a secret: give it with --secret-file, or in a context",
    "CREDENTIAL_REFUSED": "the node does not know the secret",
    "FORBIDDEN": "the secret has no permission for this",
    "TLS_REQUIRED": "the node wants TLS: give an https:// address, and the TLS files in a context",
    "TOPIC_NOT_FOUND": "the topic does not exist",
    "CHANNEL_NOT_FOUND": "the channel does not exist; 'nsqtw channel create' makes one",
    "MESSAGE_NOT_FOUND": "the message does not exist, or is not kept any more",
    "MESSAGE_NOT_DEFERRED": "no deferred message has this id: it was delivered or cancelled, or is unknown",
    "INVALID_ID": "ID must be the 16 hex digits of a message's id; with --publisher-id, what its publisher gave it",
    "INVALID_DEFER": _DEFER_LIMIT,
    "DEDUPE_WINDOW_REQUIRED": "the topic knows no publishers' ids: it has no dedupe_window",
    "INVALID_TO": "TO must be earliest, latest, a duration (1h: an hour ago), a time (2026-01-31T08:00)"
    " or the id of a message",
    "INVALID_TOPIC": "no topic can have this name",
    "INVALID_CHANNEL": "no channel can have this name",
    "EPHEMERAL_CHANNEL": "an ephemeral channel has no place in the log and keeps no messages to look at",
}
_NO_HTTP = "the answer is no HTTP; is this the HTTP port?"
_TLS_CAUSES = (
    (re.compile(r"wrong.version.number", re.IGNORECASE), "the answer is no TLS; is this the HTTPS port?"),
    (
        re.compile(r"certificate.verify.failed|unable to get local issuer|self.signed", re.IGNORECASE),
        "its certificate is of an unknown authority: name the authority's file with --tls-ca-file in a context"
        " ('nsqtw context add')",
    ),
)
_CAUSES = (
    *_TLS_CAUSES,
    (re.compile(r"closed before the end of the answer|lost in a non-clean fashion"), _NO_HTTP),
    (re.compile(r"no answer within|timed out", re.IGNORECASE), "it hangs, or is no HTTP server"),
)
"""What in a text means for the user."""
_REFUSALS_OF_NSQD = (
    ("E_AUTH_FAILED", "the node does not know the secret"),
    ("E_UNAUTHORIZED", "the secret has no permission for this"),
    ("E_AUTH_FIRST", _REMEDIES["CREDENTIAL_REQUIRED"]),
    ("Auth Required", _REMEDIES["CREDENTIAL_REQUIRED"]),
)
"""Texts in error frames and of failed handshakes, and what they mean for the user."""
_LIMITS_OF_NSQD = (
    (re.compile(r"^E_BAD_MESSAGE .*too big"), "nsqd's --max-msg-size limits it"),
    (re.compile(r"^E_BAD_BODY .*too big"), "nsqd's --max-body-size limits it"),
    (re.compile(r"^E_INVALID DPUB .*timeout"), _DEFER_LIMIT),
)
_USAGE = ("INVALID_ID", "INVALID_POLICY", "INVALID_TO")
"""Words of answers to a wrong argument."""
_LOCAL_HINT = "; 'nsqtw up' starts a cluster here, and --nsqd-http-address or a context names another"


class ExitCode(IntEnum):
    """The exit codes. The text of each is its line in the documentation."""

    text: str

    def __new__(cls, number: int, text: str) -> ExitCode:
        """Make a member: its number, and the line of the documentation."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.text = text
        return member

    DONE = 0, "The command is done."
    FAILED = 1, "The command failed, or a check found an error."
    WRONG_USAGE = 2, "A word, an option, a context or the config file is wrong. Nothing was done."
    NOT_FOUND = 3, "The topic, channel, message or file does not exist."
    CANNOT_CONNECT = 4, "No node of the cluster can be reached."
    REFUSED = 5, "A node refused the credentials, or they do not permit the action."
    PARTIAL_FAILURE = 6, "Some nodes did it and some did not. stderr names those that did not."
    INTERRUPTED = 130, "Ctrl-C or SIGTERM ended the command before it was done."


_CODES: tuple[tuple[type[NsqtwError], ExitCode], ...] = (
    (PermissionRefused, ExitCode.REFUSED),
    (AuthError, ExitCode.REFUSED),
    (NotFound, ExitCode.NOT_FOUND),
    (ConnectFailed, ExitCode.CANNOT_CONNECT),
    (NotConnected, ExitCode.CANNOT_CONNECT),
    (OptionError, ExitCode.WRONG_USAGE),
)


def exit_code_of(error: NsqtwError) -> ExitCode:
    """Return the exit code of a command that an error ended."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


def explained(error: NsqtwError) -> NsqtwError:
    """Return the error with the exit code and the text for the user."""
    if isinstance(error, UnknownObject):
        return NotFound(str(error))
    if isinstance(error, ClientLibraryError):
        return _client_error(error)
    if not isinstance(error, ClusterError):
        return error
    causes = error.errors if isinstance(error, NoServerAnswered) else (error,)
    if causes and all(isinstance(cause, Unsupported) for cause in causes):
        return CommandError("the nodes cannot do this: it needs nsqd of nsqtw, in this version or a later one")
    program = error.program if isinstance(error, NoServerAnswered) else ""
    return failure_of(causes, program)


def _client_error(error: ClientLibraryError) -> NsqtwError:
    """Return an error of the client library with the exit code and the text for the user."""
    text = str(error)
    for found, meaning in _REFUSALS_OF_NSQD:
        if found in text:
            return PermissionRefused(f"{meaning} ({found})")
    for pattern, remedy in _LIMITS_OF_NSQD:
        if pattern.search(text):
            return CommandError(f"{text}; {remedy}")
    dialed = _DIALED.match(text)
    if dialed:
        return ConnectFailed(dialed["server"], f"cannot connect to nsqd: {readable(text)}")
    return error


def topic_not_found(topic: str) -> NotFound:
    """Return the error for a topic that no node has."""
    return NotFound(f"no node has a topic {topic!r}; 'nsqtw topic list' shows them")


def failure_of(causes: Iterable[object], program: str = "") -> NsqtwError:
    """Return the error for errors of the cluster, or their texts, none of which is a success."""
    details = {line: getattr(cause, "detail", "") for cause in causes for line in str(cause).split("\n") if line}
    lines = list(details)
    if not lines:
        return NotFound(f"no {program or 'node'} answered: none is registered" if program else "no node was found")
    shown = "; ".join(dict.fromkeys(readable(line, detail) for line, detail in details.items()))
    statuses = {int(match[1]) for match in map(_STATUS.search, lines) if match}
    if not statuses.isdisjoint(REFUSALS):
        return PermissionRefused(shown)
    if statuses == {404}:
        return NotFound(shown)
    if statuses:
        is_usage = all((word := _WORD.search(line)) and word[1] in _USAGE for line in lines)
        return OptionError(shown) if is_usage else CommandError(shown)
    hint = _LOCAL_HINT if any(LOCAL_NSQD in line for line in lines) else ""
    return ConnectFailed("", f"cannot connect{f' to {program}' if program else ''}: {shown}{hint}")


def readable(text: str, detail: str = "") -> str:
    """
    Return a text of the cluster for a person: the cause and the remedy instead of Go's wrapping. `detail` is the
    sentence of a node beside it.
    """
    word = _WORD.search(text)
    if word:
        sentence = _REMEDIES.get(word[1], detail)
        return f"{sentence} ({word[1]})" if sentence else word[1]
    unconnected = _NO_CONNECTION.match(text)
    if unconnected:
        server, why = unconnected["url"].partition("://")[2].partition("/")[0], unconnected["why"]
    elif found := _DIALED.match(text) or _ASKED.match(text):
        server, why = found["server"], found["why"]
    else:
        return _NO_HTTP if text.startswith(_NO_HTTP_START) else _with_meaning(text, _TLS_CAUSES)
    why = why.removeprefix("connect: ")
    why = _with_meaning(why, _CAUSES)
    return f"{server}: {_NO_HTTP if why.startswith(_NO_HTTP_START) else why}"


def _with_meaning(text: str, causes: Sequence[tuple[re.Pattern[str], str]]) -> str:
    return next((f"{text}: {meaning}" for pattern, meaning in causes if pattern.search(text)), text)
