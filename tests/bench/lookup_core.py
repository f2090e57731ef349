"""
The registrations of nsqlookupd by themselves: what they take, and how long questions do.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from nsqtw.lookupd import snapshot
from nsqtw.lookupd.json_documents import lookup_document, node_pieces
from nsqtw.lookupd.model import Producer, RegistrationQuotas
from nsqtw.lookupd.registrations import Registrations

from .errors import WrongCount
from .lookup_shape import Shape

_HOUR_NS = 3600 * 10**9
_LOOKUPS = 1000
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class CoreFigures:
    """
    Bytes and seconds; CPU of this process, so others on the machine do not count.
    """

    resident: int
    """What the process grew by."""
    traced: int
    """What Python's allocator gave out for it, the sum of all objects."""
    register: float
    """Of one REGISTER."""
    lookup: float
    """A /lookup with its JSON."""
    nodes: float
    """All of /nodes with its JSON."""
    nodes_piece: float
    """The longest piece of it, which is for how long nobody else is served."""
    nodes_bytes: int
    gone: float
    """The end of one connection."""
    save: float
    """The snapshot, all pieces."""
    snapshot_bytes: int
    restore: float


def measure(shape: Shape) -> CoreFigures:
    """
    To be called in a process that has done nothing else. `WrongCount` when an answer is not what was registered.
    """
    gc.collect()
    before = _resident()
    start = time.process_time()
    registrations = _filled(shape)
    register = (time.process_time() - start) / shape.registrations
    gc.collect()
    resident = _resident() - before
    now = time.time_ns()
    pieces: list[bytes] = []
    nodes_times = [_pieces_timed(node_pieces(registrations.walk_nodes(now)), pieces) for _ in range(5)]
    data = snapshot.encode(registrations, now)
    figures = CoreFigures(
        resident,
        _traced(shape),
        register,
        _lookup_seconds(registrations, shape, now),
        median(sum(times) for times in nodes_times),
        median(max(times) for times in nodes_times),
        len(b"".join(pieces)) // len(nodes_times),
        _seconds(lambda: registrations.remove_peer(0)),
        _seconds(lambda: snapshot.encode(registrations, now)),
        len(data),
        _seconds(lambda: snapshot.restore(_empty(), data, now)),
    )
    if registrations.registration_count != 2 * (shape.registrations - shape.each):
        raise WrongCount(f"{registrations.registration_count} registrations are left of {shape.title}")
    return figures


def _empty() -> Registrations:
    return Registrations(_HOUR_NS, _HOUR_NS, RegistrationQuotas())


def _filled(shape: Shape) -> Registrations:
    registrations = _empty()
    now = time.time_ns()
    for nsqd in range(shape.nsqds):
        name = f"nsqd-{nsqd:04}.example.net"
        registrations.identify(Producer(nsqd, f"10.0.0.1:{nsqd}", name, name, 4150, 4151, "1.3.0"), now)
        for topic, channel in shape.of(nsqd):
            registrations.register(nsqd, topic, channel)
    return registrations


def _traced(shape: Shape) -> int:
    tracemalloc.start()
    registrations = _filled(shape)
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del registrations
    return traced


def _lookup_seconds(registrations: Registrations, shape: Shape, now: int) -> float:
    topics = [shape.topic(number * 7919) for number in range(_LOOKUPS)]
    start = time.process_time()
    for topic in topics:
        found = registrations.lookup(topic, now)
        if found is None or len(found.producers) != shape.producers_of_a_topic:
            raise WrongCount(f"a lookup of {topic} found {found}")
        lookup_document(found)
    return (time.process_time() - start) / _LOOKUPS


def _pieces_timed(pieces: Iterator[bytes], into: list[bytes]) -> list[float]:
    """
    The CPU that each piece took.
    """
    times = []
    last = time.process_time()
    for piece in pieces:
        into.append(piece)
        now = time.process_time()
        times.append(now - last)
        last = now
    return times


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
