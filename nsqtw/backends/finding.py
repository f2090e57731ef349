"""A finding: one problem in a data path."""

from __future__ import annotations

from attrs import frozen


@frozen
class Finding:
    """
    `what` it is in a few words, the path `where`, what it `costs`, and what a repair does about it: `remedy` as the
    end of a sentence that starts with "--repair"; None when it leaves it.
    """

    what: str
    where: str
    costs: str
    remedy: str | None = None
    topic: str | None = None
    channel: str | None = None
    offset: int | None = None
    """Bytes from the start of the file."""
    messages: tuple[int, int] | None = None
    """The first and the last sequence; there may be fewer between them, because gaps are normal."""

    def __str__(self) -> str:
        """The one line for the operator."""
        location = [f"topic {self.topic}"] if self.topic is not None else []
        location += [f"channel {self.channel}"] if self.channel is not None else []
        location += [self.where if self.offset is None else f"{self.where} at {self.offset}"]
        location += [f"messages {self.messages[0]} to {self.messages[1]}"] if self.messages is not None else []
        remedy = f"--repair {self.remedy}" if self.remedy is not None else "--repair leaves it"
        return f"{self.what}: {', '.join(location)}: {self.costs}; {remedy}"
