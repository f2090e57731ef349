"""
PUBLISH frames of one message each that came together, or one frame of any number: what becomes of them.

Performance: one object per publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqtw.errors import ClientError
from nsqtw.protocols.session import PublishAnswer

if TYPE_CHECKING:
    from nsqtw.protocols.v3.session import V3Session


class Publish(PublishAnswer):
    """The PUBLISH frames `numbers` of `session`."""

    __slots__ = ("numbers", "session")

    def __init__(self, session: V3Session, numbers: list[int]) -> None:
        self.session = session
        self.numbers = numbers

    def answer(self, error: ClientError | None) -> None:
        """PublishAnswer API."""
        self.session.published(self.numbers, error)


class PublishWithIds(Publish):
    """The same for a client that is told the ids of its messages."""

    __slots__ = ("_ids",)

    def __init__(self, session: V3Session, numbers: list[int]) -> None:
        super().__init__(session, numbers)
        self._ids: list[int] = []

    def on_assigned(self, ids: list[int]) -> None:
        """Assigned API."""
        self._ids = ids

    def answer(self, error: ClientError | None) -> None:
        """PublishAnswer API."""
        numbers = self.numbers
        if error is not None:
            self.session.published(numbers, error)
        elif len(numbers) == 1:
            self.session.published_with_ids([(numbers[0], self._ids)])
        else:
            pairs = zip(numbers, self._ids, strict=True)
            self.session.published_with_ids([(number, [message]) for number, message in pairs])
