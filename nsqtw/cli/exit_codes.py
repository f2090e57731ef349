"""The exit codes of `nsqtw`, and which error ends a command with which of them."""

from __future__ import annotations

from enum import IntEnum

from nsqtw.errors import (
    AuthError,
    ConnectFailed,
    NotConnected,
    NotFound,
    NsqtwError,
    OptionError,
    PermissionRefused,
)


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


REFUSALS = (401, 403)
"""The statuses of an answer that refuses the credentials."""


def exit_code_of(error: NsqtwError) -> ExitCode:
    """Return the exit code of a command that an error ended."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
