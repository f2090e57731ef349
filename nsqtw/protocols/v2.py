"""
NSQ's protocol V2: its commands, and the plugin.

    IDENTIFY + json            -> OK, or json with feature_negotiation
    AUTH + secret              -> json, perhaps later
    SUB <topic> <channel>      -> OK
    PUB <topic> + body         -> OK                 MPUB, DPUB <topic> <ms> alike
    RDY <n>                    -> messages, up to n unfinished at a time
    FIN <id>                   -> (E_FIN_FAILED)
    REQ <id> <ms>              -> (E_REQ_FAILED)
    TOUCH <id>                 -> (E_TOUCH_FAILED)
    CLS                        -> CLOSE_WAIT
    NOP                        ->
    _heartbeat_ every interval <- answered by any command

See docs/reference/protocol.md.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zope.interface import provider

from nsqtw.core.client import ClientState
from nsqtw.interfaces import IProtocolFactory
from nsqtw.protocols.parameters import shown_id, shown_name, shown_number
from nsqtw.protocols.v2_command import (
    ANY_STATE,
    CONSUMING,
    DOCUMENT,
    MESSAGE,
    MESSAGE_OF_RUN,
    MESSAGES,
    CommandSpec,
)
from nsqtw.protocols.v2_session import V2Session
from nsqtw.protocols.v2_subscription import Subscriber
from nsqtw.rights import PUBLISH, SUBSCRIBE

IN_INIT: Final = frozenset({ClientState.INIT})

COMMANDS: dict[bytes, CommandSpec[V2Session]] = {
    b"IDENTIFY": CommandSpec(IN_INIT, V2Session.on_identify, body=DOCUMENT, before_tls=True),
    b"AUTH": CommandSpec(IN_INIT, V2Session.on_auth, check=V2Session.check_auth, body=DOCUMENT),
    b"SUB": CommandSpec(
        IN_INIT, V2Session.on_sub, check=V2Session.check_sub, right=SUBSCRIBE, shown=(shown_name, shown_name)
    ),
    b"PUB": CommandSpec(
        ANY_STATE,
        V2Session.on_pub,
        check=V2Session.check_pub,
        right=PUBLISH,
        body=MESSAGE_OF_RUN,
        shown=(shown_name,),
    ),
    b"MPUB": CommandSpec(
        ANY_STATE, V2Session.on_mpub, check=V2Session.check_mpub, right=PUBLISH, body=MESSAGES, shown=(shown_name,)
    ),
    b"DPUB": CommandSpec(
        ANY_STATE,
        V2Session.on_dpub,
        check=V2Session.check_dpub,
        right=PUBLISH,
        body=MESSAGE,
        shown=(shown_name, shown_number),
    ),
    b"RDY": CommandSpec(CONSUMING, V2Session.on_rdy, shown=(shown_number,)),
    b"FIN": CommandSpec(CONSUMING, consume=Subscriber.finish, shown=(shown_id,)),
    b"REQ": CommandSpec(CONSUMING, consume=Subscriber.requeue, shown=(shown_id, shown_number)),
    b"TOUCH": CommandSpec(CONSUMING, consume=Subscriber.touch, shown=(shown_id,)),
    b"CLS": CommandSpec(frozenset({ClientState.SUBSCRIBED}), V2Session.on_cls),
    b"NOP": CommandSpec(ANY_STATE, V2Session.on_nop),
}
"""All commands. A new command is one entry here, and its functions."""


@provider(IProtocolFactory)
class V2Factory:
    """Makes V2 sessions."""

    name = "V2"
    summary = "NSQ's protocol, as every NSQ client speaks it"
    magic = b"  V2"

    @staticmethod
    def session(broker: Any, remote_address: str, changed: Callable[[], None], now: float) -> V2Session:
        """A session for a connection whose magic is taken off."""
        return V2Session(broker, remote_address, changed, now, COMMANDS)
