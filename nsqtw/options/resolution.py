"""
Resolution: the policy in force of a topic or channel, from several sources.

Theory of operation. The policy in force has three sources; of several the last one that has a setting wins:

    the defaults  ─▶  tables of the config file whose pattern matches, in their order  ─▶  what was set and saved

What was set is refused when it contradicts the rest. A table that contradicts the tables before it is left out as a
whole, and reported: which tables meet in a topic or channel is known only when it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import attrs

from nsqtw.errors import InvalidPolicy
from nsqtw.options.refusals import check_together
from nsqtw.options.settings import ChannelPolicy, PolicyClass, TopicPolicy

Policy = TypeVar("Policy", TopicPolicy, ChannelPolicy)
NOTHING_GIVEN: Final[Mapping[str, Any]] = MappingProxyType({})
DEFAULT, SET = "default", "set"
"""Names of sources beside the tables of the config file."""


@attrs.frozen
class PolicyTable:
    """Settings that stand together: a table of the config file, by its head, with its values."""

    name: str
    values: Mapping[str, Any]


@attrs.frozen
class Resolution(Generic[Policy]):
    """
    A policy with the source of each setting that is no default. `unused`: a line about each table that was left out.
    """

    policy: Policy
    sources: Mapping[str, str]
    unused: tuple[str, ...] = ()


NO_TOPIC_POLICY: Final = TopicPolicy()
NO_CHANNEL_POLICY: Final = ChannelPolicy()
"""The policies of topics and channels of which nothing is said: always these objects."""
NO_TOPIC_RESOLUTION: Final = Resolution(NO_TOPIC_POLICY, {})
NO_CHANNEL_RESOLUTION: Final = Resolution(NO_CHANNEL_POLICY, {})
_DEFAULTS: Final[dict[Any, Any]] = {TopicPolicy: NO_TOPIC_RESOLUTION, ChannelPolicy: NO_CHANNEL_RESOLUTION}


def resolve(policy: type[Policy], tables: Sequence[PolicyTable], given: Mapping[str, Any]) -> Resolution[Policy]:
    """Return the policy that the tables and the settings `given` at run time give. InvalidPolicy for the latter."""
    if not tables and not given:
        default: Resolution[Policy] = _DEFAULTS[policy]
        return default
    values, sources = dict[str, Any](), dict[str, str]()
    unused: list[str] = []
    for table in tables:
        try:
            check_together(policy, {**values, **table.values})
        except InvalidPolicy as error:
            guilty = _contradicting(policy, values, sources, table.values)
            unused.append(f"{table.name} is not used, because it contradicts {guilty}: {error}")
        else:
            values.update(table.values)
            sources |= dict.fromkeys(table.values, table.name)
    values.update(given)
    try:
        check_together(policy, values)
    except InvalidPolicy as error:
        check_together(policy, given)
        raise InvalidPolicy(
            f"{error} (with the settings of {_contradicting(policy, values, sources, given)})"
        ) from None
    return Resolution(policy(**values), {**sources, **dict.fromkeys(given, SET)}, tuple(unused))


def _contradicting(
    policy: PolicyClass, values: Mapping[str, Any], sources: Mapping[str, str], others: Mapping[str, Any]
) -> str:
    """
    Return the first table whose settings contradict `others` by themselves; all tables when only several together do.
    `values` have the settings of the tables, `sources` the table of each.
    """
    names = dict.fromkeys(sources.values())
    for name in names:
        of_table = {key: values[key] for key, source in sources.items() if source == name}
        try:
            check_together(policy, {**of_table, **others})
        except InvalidPolicy:
            return name
    return ", ".join(names)


def resolve_what_fits(
    resolved: Callable[[Mapping[str, Any]], Resolution[Policy]], given: Mapping[str, Any]
) -> Resolution[Policy]:
    """
    Return what `resolved` returns for `given`; without settings, and with a line in `unused`, if the config file
    contradicts them since they were made.
    """
    try:
        return resolved(given)
    except InvalidPolicy as error:
        line = "the settings that were made at run time are not used, because the config file contradicts them: "
        without: Resolution[Policy] = resolved(NOTHING_GIVEN)
        return attrs.evolve(without, unused=(*without.unused, f"{line}{error}"))
