"""
The names of all topics and channels, in the file and the format of nsqd: `nsqd.dat` in the data path.

    {"topics":[{"name":"a","paused":false,"channels":[{"name":"c","paused":true}]}],"version":"1.3.0"}

Compact, without a line end, empty lists are `null`, in no particular order. The caller leaves ephemeral topics and
channels out. The file is replaced as a whole: written under another name, synced, and renamed.

positions.db is authoritative for this broker. This file tells tools, and an nsqd that takes over, the names; read at
the start it adds the topics and channels that an nsqd left, or that a lost positions.db had.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from nsqtw import NSQ_VERSION
from nsqtw.backends.files import Files, backend_error, replace_file
from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from nsqtw.errors import MetadataError
from nsqtw.interfaces import OperatorLog
from nsqtw.names import is_valid_name

__all__ = ["METADATA_FILE", "NamedChannel", "NamedTopic", "read", "write"]

METADATA_FILE = "nsqd.dat"
_BOOLEANS = ("false", "true")
_JSON_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean"}


def read(path: str, log: OperatorLog) -> list[NamedTopic] | None:
    """
    The topics that the file at `path` names, ephemeral ones too; None when there is no file. What has an invalid name
    is left out, with a warning. MetadataError when the file cannot be read or is not such JSON.
    """
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as failure:
        why = (failure.strerror or str(failure)).lower()
        raise MetadataError(f"failed to read metadata from {path} - {why}") from failure
    try:
        return _topics(json.loads(text, object_pairs_hook=_object, parse_constant=_no_value), log)
    except (ValueError, RecursionError) as error:
        is_cut_off = isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip())
        why = "unexpected end of JSON input" if is_cut_off else str(error)
        raise MetadataError(f"failed to parse metadata in {path} - {why}") from error


def write(path: str, topics: Iterable[NamedTopic], files: Files | None = None) -> None:
    """
    Let the file at `path` name these topics and no others; their names are valid. BackendError when it cannot be
    written: then it is what it was.
    """
    files = files or Files()
    try:
        replace_file(files, path, _document(topics))
    except OSError as failure:
        raise backend_error(failure, f"write {os.path.basename(path)}") from failure


def _document(topics: Iterable[NamedTopic]) -> bytes:
    """
    Return the contents of the file. Joined directly: several times as fast as `json`, whose one call also blocks all
    other threads, 10 ms and more for 10,000 topics. A valid name has nothing to escape.
    """
    listed = ",".join(
        [
            f'{{"name":"{topic.name}","paused":{_BOOLEANS[topic.paused]},"channels":{_channels(topic.channels)}}}'
            for topic in topics
        ]
    )
    return f'{{"topics":{f"[{listed}]" if listed else "null"},"version":"{NSQ_VERSION}"}}'.encode()


def _channels(channels: tuple[NamedChannel, ...]) -> str:
    listed = ",".join([f'{{"name":"{channel.name}","paused":{_BOOLEANS[channel.paused]}}}' for channel in channels])
    return f"[{listed}]" if listed else "null"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """nsqd knows a key in any case; the last one wins."""
    return {key.lower(): value for key, value in pairs}


def _no_value(text: str) -> None:
    raise ValueError(f"{text} is no JSON value")


def _topics(document: Any, log: OperatorLog) -> list[NamedTopic]:
    """Each topic once, and each of its channels: paused if the file says so anywhere. ValueError."""
    fields = _typed(document, dict, {}, "the document")
    _typed(fields.get("version"), str, "", "version")
    topics: dict[str, NamedTopic] = {}
    for entry in _typed(fields.get("topics"), list, [], "topics"):
        name, paused, listed = _topic_fields(entry)
        if not is_valid_name(name):
            log("warn", f"skipping creation of invalid topic {name}")
            continue
        before = topics.get(name, NamedTopic(name))
        channels = {channel.name: channel for channel in before.channels}
        for channel in listed:
            if not is_valid_name(channel.name):
                log("warn", f"skipping creation of invalid channel {channel.name}")
            elif channel.paused or channel.name not in channels:
                channels[channel.name] = channel
        topics[name] = NamedTopic(name, paused or before.paused, tuple(channels.values()))
    return list(topics.values())


def _topic_fields(entry: Any) -> tuple[str, bool, list[NamedChannel]]:
    fields = _typed(entry, dict, {}, "a topic")
    name, paused = _name_and_paused(fields, "topic")
    channels = [
        NamedChannel(*_name_and_paused(_typed(channel, dict, {}, "a channel"), "channel"))
        for channel in _typed(fields.get("channels"), list, [], f"channels of topic {name}")
    ]
    return name, paused, channels


def _name_and_paused(fields: dict[str, Any], what: str) -> tuple[str, bool]:
    name = _typed(fields.get("name"), str, "", f"the name of a {what}")
    return name, _typed(fields.get("paused"), bool, False, f"paused of {what} {name}")


def _typed(value: Any, kind: type, absent: Any, what: str) -> Any:
    """`value`, which must be of `kind`; `absent` where it is null or not there, as nsqd reads it."""
    if value is None:
        return absent
    if not isinstance(value, kind):
        raise ValueError(f"{what} is no JSON {_JSON_NAMES[kind]}")
    return value
