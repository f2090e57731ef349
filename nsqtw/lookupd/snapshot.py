"""
Format version 1 of a snapshot of the registrations, with which a restarted nsqlookupd answers at once.

UTF-8; one line of JSON for the header, each producer and each topic, between a first and a last line:

    NSQTW REGISTRATIONS 1                                            the version
    {"saved_at":1763795000000000000}                                 unix time, nanoseconds
    {"producer":12,"silent_ns":3000,"remote_address":"10.0.0.1:40012","hostname":"h","broadcast_address":"h.example",
     "tcp_port":4150,"http_port":4151,"version":"1.3.0","topology_zone":"","topology_region":""}   on one line
    {"topic":"t","has_key":true,"members":[12],"tombstones":[[12,1763794999000000000]],"channels":{"c":[12],"d":[]}}
    CRC 1a2b3c4d                                                     CRC-32 as in zlib of all bytes before this line

Producers precede topics, which refer to them by the number of their former connection. A reference to a missing
producer means that it connected while the snapshot was written, and is ignored: a snapshot is a best guess. But a file
is either valid as a whole or rejected.

The silence of a producer continues where it stood: the time in which nsqlookupd did not run is not counted. Several
connections of one address were one nsqd, or one of them was dead; they are loaded as one that is shown where one of
them was.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

from attrs import asdict, evolve

from nsqtw.errors import SnapshotError
from nsqtw.lookupd.model import Producer, Topic
from nsqtw.lookupd.registrations import Registrations
from nsqtw.names import is_valid_name

VERSION = 1
_HEAD = b"NSQTW REGISTRATIONS "
_TAIL = b"CRC %08x\n"
_TAIL_BYTES = len(_TAIL % 0)
_MAX = 1 << 63
_TEXTS = ("remote_address", "hostname", "broadcast_address", "version", "topology_zone", "topology_region")
_NUMBERS = ("tcp_port", "http_port")


class Restored(NamedTuple):
    """The contents of a snapshot."""

    saved_at: int
    producers: int
    topics: int


def encode(registrations: Registrations, now: int) -> bytes:
    """The whole snapshot."""
    return b"".join(pieces(registrations, now))


def pieces(registrations: Registrations, now: int) -> Iterator[bytes]:
    """The same a line at a time, so that the caller can serve others in between."""
    crc = 0
    for line in _lines(registrations, now):
        crc = crc32(line, crc)
        yield line
    yield _TAIL % crc


def restore(registrations: Registrations, data: bytes, now: int) -> Restored:
    """
    Take in what the snapshot says, into registrations that know nothing yet. SnapshotError: then they still do not.
    """
    saved_at, producers, topics = _parsed(data)
    ids = _taken_in(registrations, producers, now)
    for topic, tombstones in topics:
        hidden = _hidden(topic, tombstones, ids)
        topic.members = _renumbered(topic.members, ids)
        topic.channels = {name: _renumbered(members, ids) for name, members in topic.channels.items()}
        registrations.adopt(topic, hidden)
    return Restored(saved_at, len(set(ids.values())), len(topics))


def _lines(registrations: Registrations, now: int) -> Iterator[bytes]:
    yield b"%b%d\n" % (_HEAD, VERSION)
    yield _line({"saved_at": now})
    for producer, last_update in registrations.walk_producers():
        fields = asdict(producer)
        yield _line({"producer": fields.pop("peer_id"), "silent_ns": max(0, now - last_update), **fields})
    for topic, tombstones in registrations.walk_topics():
        channels = {name: members.tolist() for name, members in topic.channels.items()}
        yield _line(
            {
                "topic": topic.name,
                "has_key": topic.has_key,
                "members": topic.members.tolist(),
                "tombstones": list(tombstones.items()),
                "channels": channels,
            }
        )


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


# -- reading

_Topics = list[tuple[Topic, dict[int, int]]]
_Producers = list[tuple[Producer, int]]


def _parsed(data: bytes) -> tuple[int, _Producers, _Topics]:
    lines = _checked(data)
    producers: _Producers = []
    topics: dict[str, tuple[Topic, dict[int, int]]] = {}
    try:
        saved_at = _number(json.loads(lines[0])["saved_at"])
        for line in lines[1:]:
            fields = _object(json.loads(line))
            if "producer" in fields:
                producers.append((_producer(fields), _number(fields["silent_ns"])))
            else:
                topics[fields["topic"]] = _topic(fields)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise SnapshotError(f"the snapshot is damaged: {type(error).__name__}: {error}") from error
    return saved_at, producers, list(topics.values())


def _checked(data: bytes) -> list[bytes]:
    """The lines between head and tail, of a file that is whole."""
    head = data.partition(b"\n")[0]
    if not head.startswith(_HEAD):
        raise SnapshotError("this is no snapshot of registrations")
    if head != b"%b%d" % (_HEAD, VERSION):
        raise SnapshotError(f"the snapshot has another version than {VERSION}")
    body = data[:-_TAIL_BYTES]
    if data[-_TAIL_BYTES:] != _TAIL % crc32(body):
        raise SnapshotError("the snapshot is damaged: its checksum does not hold")
    return body.split(b"\n")[1:-1]


def _producer(fields: dict[str, Any]) -> Producer:
    values: dict[str, Any] = {name: _text(fields[name]) for name in _TEXTS}
    values.update((name, _number(fields[name])) for name in _NUMBERS)
    return Producer(peer_id=_number(fields["producer"]), **values)


def _topic(fields: dict[str, Any]) -> tuple[Topic, dict[int, int]]:
    """
    Read a topic, with the numbers of the file. A member of a channel is a member of the topic, and a topic with members
    has its key.
    """
    channels = {_name(name): array("q", members) for name, members in _object(fields["channels"]).items()}
    members = array("q", sorted(set(fields["members"]).union(*channels.values())))
    tombstones = {_number(peer_id): _number(at) for peer_id, at in fields["tombstones"]}
    return Topic(_name(fields["topic"]), fields["has_key"] is True or bool(members), members, channels), tombstones


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no object")
    return value


def _name(value: Any) -> str:
    if not is_valid_name(_text(value)):
        raise ValueError(f"{value!r} is no name")
    return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or not -_MAX <= value < _MAX:
        raise ValueError(f"{value!r} is no number")
    return value


# -- taking in


def _taken_in(registrations: Registrations, producers: _Producers, now: int) -> dict[int, int]:
    """Let the producers identify, one for each address, the one heard of last. Returns old number -> new one."""
    ids: dict[int, int] = {}
    of_address: dict[tuple[str, int], int] = {}
    for producer, silent_ns in sorted(producers, key=lambda pair: pair[1]):
        address = producer.broadcast_address, producer.tcp_port
        if address not in of_address:
            of_address[address] = -1 - len(of_address)
            registrations.identify(evolve(producer, peer_id=of_address[address]), now - max(0, silent_ns))
        ids[producer.peer_id] = of_address[address]
    return ids


def _renumbered(members: array[int], ids: dict[int, int]) -> array[int]:
    return array("q", sorted({ids[peer_id] for peer_id in members if peer_id in ids}))


def _hidden(topic: Topic, tombstones: dict[int, int], ids: dict[int, int]) -> dict[int, int]:
    """New number -> when the first of its tombstones was set, of those whose every connection has one."""
    shown = {ids[peer_id] for peer_id in topic.members if peer_id in ids and peer_id not in tombstones}
    latest_first = sorted(tombstones.items(), key=lambda pair: -pair[1])
    hidden = {ids[peer_id]: at for peer_id, at in latest_first if peer_id in ids}
    return {peer_id: at for peer_id, at in hidden.items() if peer_id not in shown}
