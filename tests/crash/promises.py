"""
Broken promises that are seen at once: an answer that no promise allows, or none.

A client that raises Broken has found something wrong with the broker. All else that it raises is its own failure.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.process import comes_true
from tests.wire import ANSWER_SECONDS


class Broken(Exception):
    """A promise was not kept."""


def expect(is_allowed: bool, asked: str, answer: object) -> None:
    """Broken unless the broker may answer so."""
    if not is_allowed:
        raise Broken(f"answer: {asked} was answered with {answer}")


def await_promised(condition: Callable[[], object], what: str) -> None:
    """Return when the condition holds. Broken when it never does."""
    if not comes_true(condition):
        raise Broken(f"stuck: {what} did not happen in {ANSWER_SECONDS:.0f} s")
