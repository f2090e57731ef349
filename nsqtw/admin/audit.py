"""
Audit lines: one log line for each action and each login, with the user, the address, what was done where, and the
outcome.

    AUDIT: alice@10.0.0.7 delete_channel topic=orders channel=billing: done
    AUDIT: bob@10.0.0.9 empty_topic topic=orders: FORBIDDEN - this needs the role admin

With --log-format=json the fields `user`, `client`, `action`, `topic`, `channel`, `node`, `message_id` and `outcome` are
separate.
"""

from __future__ import annotations

import attrs
from twisted.logger import Logger

from nsqtw.admin.access import Access
from nsqtw.admin.server import WebRequest
from nsqtw.errors import AccessDenied

DONE = "done"
_TARGET_FIELDS = ("topic", "channel", "node", "message")

_log = Logger()


@attrs.frozen(kw_only=True)
class Target:
    """What an action is about; fields that it does not need are empty."""

    topic: str = ""
    channel: str = ""
    node: str = ""
    message: str = ""
    """The id of a message."""

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in _TARGET_FIELDS)
        return "".join(f" {name}={value}" for name, value in fields if value)


class Audit:
    def __init__(self, access: Access) -> None:
        self._access = access

    def record(self, request: WebRequest, user: str, action: str, target: Target, outcome: str) -> None:
        """Log what came of an action. `user` is empty for one that is not known."""
        _log.info(
            "AUDIT: {user}@{client} {action}{target}: {outcome}",
            user=user,
            client=self._access.client_ip(request),
            action=action,
            target=str(target),
            outcome=outcome.replace("\n", "; "),
            topic=target.topic,
            channel=target.channel,
            node=target.node,
            message_id=target.message,
        )


def refused(error: AccessDenied) -> str:
    """Return the outcome of what a user may not do."""
    return f"{error.code} - {error}"
