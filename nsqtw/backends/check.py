"""
What a look at the files of a backend found, for `nsqtw fsck`: the messages of each topic, which are compared with
positions.db, what is wrong, and how it is repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from nsqtw.backends.files import Files
from nsqtw.backends.finding import Finding
from nsqtw.backends.quarantine import Quarantine
from nsqtw.backends.sequences import ChannelSequences, ClassSequences
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError

NEWER_CONTENT = "headers or messages for one channel"
"""What an older nsqtw does not know."""


@define
class StoredTopic:
    """The messages of one topic."""

    topic: str
    place: str
    """The path of the directory or file that they are in."""
    at_once: ChannelSequences = field(factory=ChannelSequences)
    """All good messages that were published without a delay."""
    deferred: ChannelSequences = field(factory=ChannelSequences)
    classes: ClassSequences | None = None
    """The classes of those without a delay; None: they are not looked at."""
    end: int = 0
    """One past the highest sequence; 0 when there is none, as a start sees it."""
    is_known: bool = True
    """Whether everything could be read."""

    def add(self, segment: Segment) -> None:
        """Add good messages, which are behind those that were added before."""
        (self.deferred if segment.delay_ms else self.at_once).add(segment.first, segment.end, segment.channel)
        if self.classes is not None:
            self.classes.add(segment)
        self.end = max(self.end, segment.end)

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.at_once) + len(self.deferred)

    @property
    def directed(self) -> dict[str, int]:
        """How many messages are for one channel only, by the channel."""
        channels = sorted({*self.at_once.of, *self.deferred.of} - {""})
        return {name: sum(len(kind.of.get(name, ())) for kind in (self.at_once, self.deferred)) for name in channels}

    def has(self, sequence: int, channel: str) -> bool:
        """Return whether a message can be read that a channel gets."""
        return self.at_once.has(sequence, channel) or self.deferred.has(sequence, channel)


@define
class BackendCheck:
    """What one backend has in a data path."""

    place: str
    """The path of the directory or file with its messages."""
    topics: Mapping[str, StoredTopic] = field(factory=dict)
    """By name, durable ones only."""
    findings: list[Finding] = field(factory=list)
    leftovers: list[tuple[str, str]] = field(factory=list)
    """Directories and files that do not count, which a repair removes, and why."""
    newer: list[str] = field(factory=list)
    """Lines about what an older nsqtw refuses to open."""
    file_count: int = 0
    """Log files, as the summary counts them."""
    size: int = 0
    """Their bytes."""
    records: int = 0
    """Good records."""
    is_unreadable: bool = False
    """Nothing can be read: then positions.db is not compared with it."""

    @property
    def with_messages(self) -> dict[str, StoredTopic]:
        """The topics that have messages."""
        return {name: topic for name, topic in self.topics.items() if topic.count}

    def repairs(self, files: Files, quarantine: Quarantine) -> Iterable[tuple[str, Callable[[], object]]]:
        """
        The steps of a repair, each with what it does: "repair of topic orders". Each may raise NsqtwError or OSError,
        and may be interrupted anywhere; what it takes away is kept in `quarantine`.
        """
        return ()

    def cut_torn_ends(self) -> None:
        """In a copy that was made while a broker wrote: remove what was not whole yet. OSError."""

    def set_aside(self, files: Files, quarantine: Quarantine) -> None:
        """Move all messages into `quarantine`: no broker delivers them. NsqtwError, OSError."""
        raise BackendError(f"the backend of {self.place} does not set messages aside")
