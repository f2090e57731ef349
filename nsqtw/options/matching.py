"""
The tables of the config file that match a topic or a channel.

Theory of operation. A broker looks up 10,000 channels in 100 tables, at its start and after each reload. So a pattern
is compiled once, and matched once with each name. The tables that match a name are one number, with a bit for each
table; those that match a channel are the tables whose first pattern matches the topic and whose second pattern matches
the channel. Most channels match the same tables as others, and share one `Resolution`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from nsqtw.options.resolution import Policy, PolicyTable, Resolution, resolve

_REMEMBERED = 1024
"""Names, and combinations of tables, whose result is kept."""


class _Rule(Protocol):
    """A table of the config file."""

    @property
    def policy(self) -> Mapping[str, Any]:
        """The settings of a policy in it."""

    @property
    def table(self) -> PolicyTable:
        """The same, with the head of the table."""


Rule = TypeVar("Rule", bound=_Rule)


class Patterns:
    """Patterns of names: `*`, `?`, `[abc]`; case counts."""

    def __init__(self, patterns: Sequence[str]) -> None:
        bits: dict[str, int] = {}
        for number, pattern in enumerate(patterns):
            bits[pattern] = bits.get(pattern, 0) | 1 << number
        self._compiled = [(re.compile(translate(pattern)).match, found) for pattern, found in bits.items()]
        self.matching: Callable[[str], int] = lru_cache(_REMEMBERED)(self._matching)
        """Return the patterns that match a name: bit n is set if the n-th one does."""

    def _matching(self, name: str) -> int:
        matching = 0
        for match, bits in self._compiled:
            if match(name):
                matching |= bits
        return matching


class Tables(Generic[Rule, Policy]):
    """
    The tables `rules`, in the order of the file. `patterns_of` returns the patterns of one, as many as there are names
    in a look-up.
    """

    def __init__(
        self, policy: type[Policy], rules: tuple[Rule, ...], patterns_of: Callable[[Rule], Sequence[str]]
    ) -> None:
        self.rules = rules
        self._policy: type[Policy] = policy
        self._patterns = [Patterns(patterns) for patterns in zip(*map(patterns_of, rules), strict=True)]
        self._matching: Callable[[int], tuple[Rule, ...]] = lru_cache(_REMEMBERED)(self._rules_of)
        self._resolution: Callable[[int], Resolution[Policy]] = lru_cache(_REMEMBERED)(self._resolve)

    def matching(self, *names: str) -> tuple[Rule, ...]:
        """Return the tables that match."""
        return self._matching(self._bits(names))

    def resolve(self, given: Mapping[str, Any], *names: str) -> Resolution[Policy]:
        """
        Return the policy that the tables that match and the settings `given` at run time give. InvalidPolicy for the
        latter.
        """
        bits = self._bits(names)
        return self._resolve(bits, given) if given else self._resolution(bits)

    def _bits(self, names: Sequence[str]) -> int:
        """Return the tables that match, as bits."""
        if not self.rules:
            return 0
        bits = -1
        for patterns, name in zip(self._patterns, names, strict=True):
            bits &= patterns.matching(name)
        return bits

    def _rules_of(self, bits: int) -> tuple[Rule, ...]:
        return tuple(rule for number, rule in enumerate(self.rules) if bits >> number & 1)

    def _resolve(self, bits: int, given: Mapping[str, Any] | None = None) -> Resolution[Policy]:
        tables = [rule.table for rule in self._matching(bits) if rule.policy]
        return resolve(self._policy, tables, given or {})
