"""
Who registers what in the measurements of nsqlookupd.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """
    ``nsqds`` connections that each have ``each`` of ``topics`` topics, and of each topic one channel.
    """

    nsqds: int
    each: int
    topics: int

    @property
    def title(self) -> str:
        return f"{self.nsqds:,} nsqds x {self.each:,} of {self.topics:,} topics"

    @property
    def registrations(self) -> int:
        """
        How often a channel is registered; as often its topic is, too.
        """
        return self.nsqds * self.each

    @property
    def producers_of_a_topic(self) -> int:
        return self.registrations // self.topics

    def of(self, nsqd: int) -> Iterator[tuple[str, str]]:
        """
        The topics and channels of one nsqd.
        """
        for number in range(nsqd * self.each, (nsqd + 1) * self.each):
            yield self.topic(number), f"channel-{number % 10}"

    def topic(self, number: int) -> str:
        """
        A name such as users give: 20 letters.
        """
        return f"orders.created.{number % self.topics:05}"


SHAPES = [Shape(100, 1000, 1000), Shape(100, 1000, 10_000), Shape(1000, 100, 1000), Shape(1, 50_000, 50_000)]
QUICK_SHAPES = [Shape(3, 20, 30)]
