"""
Actions of nsqadmin: what users can do to a cluster, one row each, for the API and the pages.

`Performer` checks the role, performs the action, logs an audit line and sends notifications.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from nsqtw.admin.access import Access
from nsqtw.admin.audit import DONE, Audit, Target, refused
from nsqtw.admin.notifications import Notifications
from nsqtw.admin.server import WebRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.cluster import CHANNEL_NOT_FOUND, Cluster
from nsqtw.cluster.model import Partial, PolicyAnswer
from nsqtw.errors import AccessDenied, ClusterError, InvalidName, InvalidPolicy, NsqtwError, UnknownObject
from nsqtw.names import is_valid_name
from nsqtw.options.settings import topics_named
from nsqtw.replication.status import ReplicaStatus

Arguments = Mapping[str, Any]
Perform = Callable[[Cluster, Target, Arguments], Awaitable[Partial[Any]]]

_FAILED, _REFUSED, _UNKNOWN = "failed", "refused", "unknown"
_NOWHERE = "no node has it"
_UNFORESEEN = f"{_UNKNOWN}: an error that nothing has foreseen; the log says more"

_log = Logger()

NO_ARGUMENTS: Arguments = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Action:
    """
    An action. `is_destructive`: messages or names are lost, or clients are disconnected, and a page asks
    for the name to be typed. `notifies` are the names of its notifications; `is_notified_always`: they are sent also
    when it fails, as in the original.
    """

    name: str
    role: Role
    perform: Perform
    is_destructive: bool = False
    is_name_checked: bool = False
    """Names must be valid: the action creates them."""
    notifies: tuple[str, ...] = ()
    is_notified_always: bool = False
    topics_named: Callable[[Arguments], tuple[str, ...]] = lambda arguments: ()
    """The topics beside the target for which the user needs the role, too."""
    uses_letters: bool = False
    """The user needs the role for the dead letters of the target, too."""
    api_word: str = ""
    """The word for the action in a POST to the API; empty for an action with a route of its own."""


def _over_nodes(name: str, **more: Any) -> list[Action]:
    """Return the rows of an action of a topic and of a channel."""

    def perform(cluster: Cluster, target: Target, arguments: Arguments) -> Awaitable[Partial[Any]]:
        change: Callable[[str, str], Awaitable[Partial[Any]]] = getattr(cluster, name)
        return change(target.topic, target.channel)

    return [
        Action(
            name=f"{name}_{kind}",
            role=Role.ADMIN,
            perform=perform,
            notifies=(f"{name}_{kind}",),
            **more,
        )
        for kind in ("topic", "channel")
    ]


async def _publish(cluster: Cluster, target: Target, arguments: Arguments) -> Partial[str]:
    body, headers = arguments["body"], arguments.get("headers")
    if headers:
        return Partial(await cluster.publish_with_headers(target.topic, [(body, headers)], node=target.node))
    return Partial(await cluster.publish(target.topic, body, node=target.node))


async def _replace(cluster: Cluster, target: Target, arguments: Arguments) -> Partial[str]:
    """
    Publish a message for the channel, and then finish the dead letter that it replaces: when something fails between
    the two, both are there.
    """
    node = await cluster.publish_with_headers(
        target.topic,
        [(arguments["body"], arguments["headers"])],
        node=target.node,
        parameters={"channel": target.channel},
    )
    try:
        finished = await cluster.finish(arguments["letter_topic"], target.channel, target.message, node=target.node)
    except ClusterError as error:
        return Partial(node, (f"The dead letter is still there: {error}",))
    return Partial(node, finished.warnings)


async def _set_policy(cluster: Cluster, target: Target, arguments: Arguments) -> Partial[tuple[PolicyAnswer, ...]]:
    """
    Set settings of a policy on all nodes, of which the user has seen `nodes`. InvalidPolicy when all refuse them,
    UnknownObject for a channel that none has.
    """
    answers = await cluster.policy_answers(target.topic, target.channel, arguments["settings"])
    refusing = [answer for answer in answers.value if answer.refusal]
    codes = {answer.code if answer.refusal else "" for answer in answers.value}
    if codes == {"INVALID_POLICY"}:
        raise InvalidPolicy("; ".join(dict.fromkeys(answer.refusal for answer in refusing)))
    if codes == {CHANNEL_NOT_FOUND}:
        raise UnknownObject("channel", target.channel)
    gone = [name for name in arguments.get("nodes", ()) if name not in {answer.node for answer in answers.value}]
    return Partial(
        tuple(answer for answer in answers.value if not answer.refusal),
        (
            *answers.warnings,
            *(f"{answer.node}: {answer.refusal}" for answer in refusing),
            *(f"{name}: was not asked: it is not found any more" for name in gone),
        ),
        any(answer.is_outcome_unknown for answer in refusing),
    )


async def _release(cluster: Cluster, target: Target, arguments: Arguments) -> Partial[ReplicaStatus]:
    return Partial(await cluster.release(await cluster.node_named(target.node)))


def _create(cluster: Cluster, target: Target, arguments: Arguments) -> Awaitable[Partial[Any]]:
    return cluster.create(target.topic, target.channel)


ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action(
            name="create_topic",
            role=Role.ADMIN,
            perform=_create,
            is_name_checked=True,
            notifies=("create_topic",),
        ),
        Action(
            name="create_channel",
            role=Role.ADMIN,
            perform=_create,
            is_name_checked=True,
            notifies=("create_topic", "create_channel"),
        ),
        *_over_nodes("delete", is_destructive=True),
        *_over_nodes("pause", api_word="pause", is_notified_always=True),
        *_over_nodes("unpause", api_word="unpause", is_notified_always=True),
        *_over_nodes("empty", api_word="empty", is_destructive=True, is_notified_always=True),
        Action(
            name="tombstone_topic_producer",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.tombstone(target.topic, target.node),
            is_destructive=True,
            is_name_checked=True,
            notifies=("tombstone_topic_producer",),
        ),
        Action(
            name="release_node",
            role=Role.ADMIN,
            perform=_release,
            is_destructive=True,
            notifies=("release_node",),
            api_word="release",
        ),
        Action(name="publish", role=Role.PUBLISH, perform=_publish),
        Action(
            name="seek_channel",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.seek(
                target.topic, target.channel, arguments["to"], node=target.node
            ),
            is_destructive=True,
            notifies=("seek_channel",),
        ),
        Action(
            name="redrive_channel",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.redrive(target.topic, target.channel, arguments),
            uses_letters=True,
            notifies=("redrive_channel",),
        ),
        Action(
            name="stop_redrive_channel",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.redrive(target.topic, target.channel, {"stop": "true"}),
            uses_letters=True,
            notifies=("stop_redrive_channel",),
        ),
        Action(
            name="redrive_message",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.redrive(
                target.topic, target.channel, {"id": target.message}, node=target.node
            ),
            uses_letters=True,
            notifies=("redrive_message",),
        ),
        Action(
            name="replace_message",
            role=Role.ADMIN,
            perform=_replace,
            uses_letters=True,
            topics_named=lambda arguments: (arguments["letter_topic"],),
            notifies=("replace_message",),
        ),
        Action(
            name="finish_message",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.finish(
                target.topic, target.channel, target.message, node=target.node
            ),
            is_destructive=True,
            notifies=("finish_message",),
        ),
        Action(
            name="cancel_message",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.cancel(
                target.topic, target.message, channel=target.channel, node=target.node
            ),
            is_destructive=True,
            notifies=("cancel_message",),
        ),
        Action(
            name="set_durability",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.set_durability(target.topic, arguments["durability"]),
            notifies=("set_durability",),
        ),
        Action(
            name="set_retention",
            role=Role.ADMIN,
            perform=lambda cluster, target, arguments: cluster.set_retention(
                target.topic, time=arguments.get("time"), size=arguments.get("bytes")
            ),
            notifies=("set_retention",),
        ),
        *(
            Action(
                name=name,
                role=Role.ADMIN,
                perform=_set_policy,
                notifies=(name,),
                topics_named=lambda arguments: topics_named(arguments["settings"]),
            )
            for name in ("set_policy_topic", "set_policy_channel")
        ),
    )
}
"""All actions by name."""


class Performer:
    """Performs actions for users."""

    def __init__(self, cluster: Cluster, access: Access, audit: Audit, notifications: Notifications) -> None:
        self._cluster = cluster
        self._access = access
        self._audit = audit
        self._notifications = notifications
        self.counts: Counter[tuple[str, ...]] = Counter()
        """The actions so far, by name and outcome: done, failed, refused, or unknown when an answer is missing."""

    async def perform(
        self, request: WebRequest, name: str, target: Target, arguments: Arguments = NO_ARGUMENTS
    ) -> Partial[Any]:
        """
        Perform the action `name` for the user of a request. The `value` of the result is empty when no server did it;
        the original reports this as warnings, too. AccessDenied, InvalidName, ClusterError. The caller has checked that
        no other site made the request. The action is carried out to its end, also when the user does not wait for it.
        """
        outcome: Deferred[Partial[Any]] = Deferred()

        def pass_on(result: Any) -> None:
            if not outcome.called:
                outcome.callback(result)
            elif isinstance(result, Failure) and not isinstance(result.value, NsqtwError):
                _log.failure("an action failed after its client had left", failure=result)

        Deferred.fromCoroutine(self._perform(request, name, target, arguments)).addBoth(pass_on)
        return await outcome

    def check(self, request: WebRequest, what: str, target: Target) -> None:
        """
        Check the user and the origin of a request that changes something, before its body is read. AccessDenied for
        another site, and for a user without the role admin.
        """
        viewer = self._access.viewer(request)
        try:
            self._access.check_origin(request)
            self._access.check(viewer, Role.ADMIN, target.topic, target.channel)
        except AccessDenied as error:
            self.counts[what, _REFUSED] += 1
            self._audit.record(request, viewer.name, what, target, refused(error))
            raise

    async def _perform(self, request: WebRequest, name: str, target: Target, arguments: Arguments) -> Partial[Any]:
        action = ACTIONS[name]
        viewer = self._access.viewer(request)
        kind, outcome, is_notified = _UNKNOWN, _UNFORESEEN, False
        try:
            self._access.check(viewer, action.role, target.topic, target.channel)
            for topic in action.topics_named(arguments):
                self._access.check(viewer, action.role, topic)
            if action.uses_letters and viewer.role < action.role:
                for topic in await _letter_topics(self._cluster, target):
                    self._access.check(viewer, action.role, topic, target.channel)
            _check_names(action, target)
            result = await action.perform(self._cluster, target, arguments)
            if result.value:
                kind, outcome, is_notified = DONE, DONE, True
                if result.warnings:
                    outcome = f"{DONE} in part: {'; '.join(result.warnings)}"
            else:
                kind = _UNKNOWN if result.is_outcome_unknown else _FAILED
                outcome, is_notified = f"{kind}: {why_not_done(result)}", action.is_notified_always
            return result
        except AccessDenied as error:
            kind, outcome = _REFUSED, refused(error)
            raise
        except NsqtwError as error:
            kind = _UNKNOWN if isinstance(error, ClusterError) and error.is_outcome_unknown else _FAILED
            outcome = f"{kind}: {error}"
            is_notified = action.is_notified_always and not isinstance(error, InvalidName)
            raise
        finally:
            self.counts[name, kind] += 1
            self._audit.record(request, viewer.name, name, target, outcome)
            for notification in action.notifies if is_notified else ():
                self._notifications.send(request, self._access.reported_user(request), notification, target)


def why_not_done(result: Partial[Any]) -> str:
    """Return why no server did an action."""
    return "\n".join(result.warnings) or _NOWHERE


async def _letter_topics(cluster: Cluster, target: Target) -> set[str]:
    """Return the topics that have the dead letters of a channel, on its nodes. ClusterError."""
    channel = (await cluster.channel(target.topic, target.channel)).value
    return {node.letter_topic for node in channel.nodes or (channel,)}


def _check_names(action: Action, target: Target) -> None:
    """Raise InvalidName for a name that no topic or channel can have."""
    if not action.is_name_checked:
        return
    if not is_valid_name(target.topic) or (target.channel and not is_valid_name(target.channel)):
        raise InvalidName
