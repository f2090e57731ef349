"""Topics that an nsqd left: queue files, together with the names and pauses of nsqd.dat."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

from nsqtw.core.checkpoint import NamedTopic
from nsqtw.interfaces import OperatorLog
from nsqtw.names import is_ephemeral, is_valid_name
from nsqtw.nsqd_import.diskqueue import QueueFiles, find

_METADATA = ".meta.dat"
_MAX_CHARACTERS = 256
_BETWEEN = re.compile("[:;]")  # nsqd writes a semicolon where a file name may have no colon


@define
class SourceTopic:
    """
    One topic. `own` are the files of what no channel was given yet, `channels` those of each channel, None where it
    left nothing; `named` is what nsqd.dat says of it.
    """

    name: str
    own: QueueFiles | None = None
    channels: dict[str, QueueFiles | None] = field(factory=dict)
    named: NamedTopic | None = None

    def queues(self) -> Iterator[QueueFiles]:
        """Yield the queues that have files, the topic's own first."""
        yield from (files for files in [self.own, *self.channels.values()] if files is not None)

    def file_names(self) -> list[str]:
        return [name for files in self.queues() for name in files.names]

    def files(self, directory: str) -> dict[str, str]:
        """
        Return the fingerprint of its files: by name, the size of data and the text of metadata. Any use of the queues
        by an nsqd changes it. OSError.
        """
        return {name: _like(os.path.join(directory, name)) for name in self.file_names()}


def _like(path: str) -> str:
    if path.endswith(_METADATA):
        with open(path, encoding="latin-1", newline="") as file:
            return file.read(_MAX_CHARACTERS)
    return str(os.path.getsize(path))


def find_topics(directory: str, names: Sequence[NamedTopic], log: OperatorLog) -> list[dict[str, SourceTopic]]:
    """
    The topics of which a data path has queue files, by name; `names` are those of nsqd.dat. What has a name that no
    topic or channel may have is left alone, with a warning; so is what nsqd had given up. OSError.

    To be taken over one dict after the other: a channel that has files under both its names, for an nsqd on Windows
    and one elsewhere were here, has the former in the second.
    """
    listing = find(os.listdir(directory))
    for name in listing.bad:
        log("warn", f"IMPORT: {name} was given up by nsqd as damaged, and is left alone")
    sources: list[dict[str, SourceTopic]] = [{}, {}]
    for queue in listing.queues.values():
        parts = _BETWEEN.split(queue.name, maxsplit=1)
        if not all(is_valid_name(part) and not is_ephemeral(part) for part in parts):
            log("warn", f"IMPORT: {queue.name!r} is no name of a queue; its files are left alone")
            continue
        usual_name = ":".join(parts)
        comes_second = queue.name != usual_name and usual_name in listing.queues
        topics = sources[1 if comes_second else 0]
        topic = topics.setdefault(parts[0], SourceTopic(parts[0]))
        if len(parts) == 1:
            topic.own = queue
        else:
            topic.channels[parts[1]] = queue
    for topics in sources:
        _add_names(topics, names)
    return sources


def _add_names(topics: dict[str, SourceTopic], names: Iterable[NamedTopic]) -> None:
    for named in names:
        if named.name in topics:
            topic = topics[named.name]
            topic.named = named
            for channel in named.channels:
                if not is_ephemeral(channel.name):
                    topic.channels.setdefault(channel.name, None)
