"""
Answers to PUBLISH frames: the results from the broker, and one CONFIRM for all since the last one.

Performance: one object per publish.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Sequence

from nsqtw.errors import ClientError
from nsqtw.interfaces import Assigned
from nsqtw.protocols.session import PublishAnswer, Session
from nsqtw.protocols.v3 import codec


class Confirms:
    """The PUBLISH frames that are stored and not confirmed yet: the last `count` are consecutive, from `first` on."""

    __slots__ = ("_earlier", "count", "first")

    def __init__(self) -> None:
        self.first = self.count = 0
        self._earlier: list[tuple[int, int]] = []
        """`first` and `count` of those before."""

    def add(self, number: int) -> None:
        """This one is stored."""
        if number == self.first + self.count:
            self.count += 1
            return
        if self.count:
            self._earlier.append((self.first, self.count))
        self.first, self.count = number, 1

    def add_run(self, numbers: list[int]) -> None:
        """These are stored, one at least."""
        self.add(numbers[0])
        following = self.first + self.count
        if numbers[1:] == [*range(following, following + len(numbers) - 1)]:
            self.count += len(numbers) - 1
        else:
            for number in numbers[1:]:
                self.add(number)

    def take(self) -> bytes:
        """Return the CONFIRM; there is something to confirm."""
        first, count, earlier = self.first, self.count, self._earlier
        self.count = 0
        if not earlier:
            return codec.confirm(first, count)
        self._earlier = []
        return codec.confirm_several([*earlier, (first, count)])


class PublishingSession(Session):
    """A session that is told the results of its PUBLISH frames."""

    def await_parts(self, count: int) -> None:
        """So many answers will come in place of one."""
        raise NotImplementedError

    def published(self, number: int, error: ClientError | None) -> None:
        """The answer of a PUBLISH frame."""
        raise NotImplementedError

    def published_run(self, numbers: list[int], error: ClientError | None) -> None:
        """The answer of PUBLISH frames that came together."""
        raise NotImplementedError

    def published_with_ids(self, frames: list[tuple[int, list[int]]]) -> None:
        """PUBLISH frames are stored; these are the ids of their messages."""
        raise NotImplementedError


class Publish(PublishAnswer):
    """The answer of the PUBLISH frame `number` of `session`."""

    __slots__ = ("_number", "_session")

    def __init__(self, session: PublishingSession, number: int) -> None:
        self._session = session
        self._number = number

    def answer(self, error: ClientError | None) -> None:
        """PublishAnswer API."""
        self._session.published(self._number, error)


class PublishRun(PublishAnswer):
    """The answer of PUBLISH frames of one message each that came together."""

    __slots__ = ("_numbers", "_session")

    def __init__(self, session: PublishingSession, numbers: list[int]) -> None:
        self._session = session
        self._numbers = numbers

    def answer(self, error: ClientError | None) -> None:
        """PublishAnswer API."""
        self._session.published_run(self._numbers, error)

    def parts(self) -> Sequence[tuple[PublishAnswer, Assigned | None]]:
        """PublishAnswer API."""
        self._session.await_parts(len(self._numbers))
        return [(Publish(self._session, number), None) for number in self._numbers]


class PublishWithIds(PublishAnswer):
    """The same for a client that is told the ids of its messages."""

    __slots__ = ("_ids", "_numbers", "_session")

    def __init__(self, session: PublishingSession, numbers: list[int]) -> None:
        self._session = session
        self._numbers = numbers
        self._ids: list[int] = []

    def on_assigned(self, ids: list[int]) -> None:
        """Assigned API."""
        self._ids = ids

    def parts(self) -> Sequence[tuple[PublishAnswer, Assigned | None]]:
        """PublishAnswer API."""
        if len(self._numbers) == 1:  # the messages of one frame
            return ()
        self._session.await_parts(len(self._numbers))
        told = [PublishWithIds(self._session, [number]) for number in self._numbers]
        return [(one, one.on_assigned) for one in told]

    def answer(self, error: ClientError | None) -> None:
        """PublishAnswer API."""
        numbers = self._numbers
        if error is not None:
            self._session.published_run(numbers, error)
        elif len(numbers) == 1:
            self._session.published_with_ids([(numbers[0], self._ids)])
        else:
            pairs = zip(numbers, self._ids, strict=True)
            self._session.published_with_ids([(number, [message]) for number, message in pairs])
