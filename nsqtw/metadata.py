"""
The names of all topics and channels, in the file and the format of nsqd: `nsqd.dat` under the data path.

    {"topics":[{"name":"a","paused":false,"channels":[{"name":"c","paused":true}]}],"version":"1.3.0"}

Compact, nothing behind it, lists that are empty are `null`, in no particular order. Ephemeral topics and channels are
left out by who writes it. The file changes as a whole: it is written under another name, synced, and given its own
(nsqd specification 5.2).

A broker of ours keeps the truth in positions.db. This file tells tools, and an nsqd that takes over, what there is;
read at the start it brings the topics and channels that an nsqd left, or that a lost positions.db knew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from secrets import randbits
from typing import Any

from nsqtw import NSQ_VERSION
from nsqtw.backends.files import Files, backend_error, write_all
from nsqtw.core.cut import NamedChannel, NamedTopic
from nsqtw.errors import MetadataError
from nsqtw.gotext import json_text
from nsqtw.interfaces import OperatorLog
from nsqtw.names import is_valid_name

__all__ = ["METADATA_FILE", "NamedChannel", "NamedTopic", "read", "write"]

METADATA_FILE = "nsqd.dat"
_MODE = 0o600
_RANDOM_BITS = 63


def read(path: str, log: OperatorLog) -> list[NamedTopic] | None:
    """
    The topics that the file at `path` names, ephemeral ones too; None when there is no file. What has an invalid name
    is left out, with a warning. MetadataError when the file cannot be read or is not such JSON.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise _unparsable(path, (failure.strerror or str(failure)).lower()) from failure
    try:
        document = json.loads(data.decode("utf-8", "replace"), object_pairs_hook=_object, parse_constant=_no_number)
        return _topics(document, log)
    except (ValueError, RecursionError) as mistake:
        raise _unparsable(path, str(mistake)) from mistake


def write(path: str, topics: Iterable[NamedTopic], files: Files | None = None) -> None:
    """
    Let the file at `path` name these topics and no others. BackendError when it cannot be written: then it is what it
    was.
    """
    files = files or Files()
    temporary = f"{path}.{randbits(_RANDOM_BITS)}.tmp"
    try:
        fd = files.open(temporary, create=True, mode=_MODE)
        try:
            write_all(files, fd, [_document(topics)], 0)
            files.sync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, path)
    except OSError as failure:
        _remove(files, temporary)
        raise backend_error(failure, f"write {os.path.basename(path)}") from failure


def _document(topics: Iterable[NamedTopic]) -> bytes:
    listed = [
        {
            "name": topic.name,
            "paused": topic.paused,
            "channels": [{"name": channel.name, "paused": channel.paused} for channel in topic.channels] or None,
        }
        for topic in topics
    ]
    return json_text({"topics": listed or None, "version": NSQ_VERSION})


def _remove(files: Files, path: str) -> None:
    """Clean up after a failure, if that can be: the next write has another name for its file."""
    try:
        files.unlink(path)
    except OSError:
        return


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """nsqd knows a key in any case; the last one wins."""
    return {key.lower(): value for key, value in pairs}


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _topics(document: Any, log: OperatorLog) -> list[NamedTopic]:
    """Each topic once, and each of its channels: paused if the file says so anywhere. ValueError."""
    found: dict[str, NamedTopic] = {}
    for entry in _list(_typed(document, dict, {}, "the document"), "topics"):
        name, paused = _name_and_paused(entry, "topic")
        if not is_valid_name(name):
            log("warn", f"skipping creation of invalid topic {name}")
            continue
        before = found.get(name, NamedTopic(name))
        channels = {channel.name: channel for channel in before.channels}
        for channel in _channels(entry, log):
            was_paused = channel.name in channels and channels[channel.name].paused
            channels[channel.name] = NamedChannel(channel.name, channel.paused or was_paused)
        found[name] = NamedTopic(name, paused or before.paused, tuple(channels.values()))
    return list(found.values())


def _channels(topic: Any, log: OperatorLog) -> list[NamedChannel]:
    channels = []
    for entry in _list(topic or {}, "channels"):
        name, paused = _name_and_paused(entry, "channel")
        if is_valid_name(name):
            channels.append(NamedChannel(name, paused))
        else:
            log("warn", f"skipping creation of invalid channel {name}")
    return channels


def _name_and_paused(entry: Any, what: str) -> tuple[str, bool]:
    fields = _typed(entry, dict, {}, f"a {what}")
    name = _typed(fields.get("name"), str, "", f"the name of a {what}")
    return name, _typed(fields.get("paused"), bool, False, f"paused of {what} {name}")


def _list(fields: dict[str, Any], key: str) -> list[Any]:
    found: list[Any] = _typed(fields.get(key), list, [], key)
    return found


def _typed(value: Any, kind: type, absent: Any, what: str) -> Any:
    """`value`, which must be of `kind`; `absent` where it is null or not there, as nsqd reads it."""
    if value is None:
        return absent
    if not isinstance(value, kind):
        raise ValueError(f"{what} is {value!r:.40}, where a JSON {_JSON_NAMES[kind]} is expected")
    return value


_JSON_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean"}


def _unparsable(path: str, why: str) -> MetadataError:
    return MetadataError(f"failed to parse metadata in {path} - {why}")
