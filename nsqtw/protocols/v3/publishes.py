"""
PUBLISH frames of a connection that asked for MESSAGE_IDS: their ids, until they are confirmed.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqtw.errors import ClientError


class PublishWithIds:
    """
    The PUBLISH frames `numbers`, which have one message each if there are several. `answered` is told the message ids
    of each frame, or the error for all.
    """

    __slots__ = ("_answered", "_ids", "_numbers")

    def __init__(
        self, numbers: list[int], answered: Callable[[list[tuple[int, list[int]]], ClientError | None], None]
    ) -> None:
        self._numbers = numbers
        self._answered = answered
        self._ids: list[int] = []

    def on_assigned(self, ids: list[int]) -> None:
        """Assigned API."""
        self._ids = ids

    def on_answer(self, error: ClientError | None) -> None:
        """Answered API."""
        numbers = self._numbers
        if len(numbers) == 1:
            self._answered([(numbers[0], self._ids)], error)
        else:
            ids = self._ids if error is None else numbers
            self._answered([(number, [message]) for number, message in zip(numbers, ids, strict=True)], error)
