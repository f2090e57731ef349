"""
Answers of servers as hypothesis makes them: documents of an nsqd or nsqlookupd with odd values at odd places, other
documents, and bytes that are none. And a cluster that gets them without a network.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import ServerAnswer
from nsqtw.errors import ClusterError, ServerFailed
from tests.replica_control import AN_OWNER

SOUND, ODD = "10.0.0.1:4151", "10.0.0.2:4151"
LOOKUPD = "10.0.0.3:4161"
SOUND_DEPTH = 3

_CLIENT = {
    **{"client_id": "i", "hostname": "h", "remote_address": "10.0.0.9:1", "user_agent": "u", "version": "V2"},
    **{"connect_ts": 1, "ready_count": 1, "in_flight_count": 1, "tls": True, "topology_zone": "z"},
}
_LATENCY = {"count": 2, "percentiles": [{"quantile": 0.99, "value": 7}, {"quantile": 0.5, "value": 1.5}]}
_MESSAGE = {
    **{"id": "0123456789abcdef", "timestamp": 1, "attempts": 1, "body": "{}", "encoding": "text", "due": 5},
    **{"deadline": 6, "headers": {"a": "b"}, "consumer": {"client_id": "c", "hostname": "h", "remote_address": "r"}},
}


def _topic(name: str, depth: int) -> dict[str, Any]:
    policy = {"dead_letter_topic": "t.dead", "expired": "drop", "max_attempts": 5, "ordered": True, "max_rate": 0.5}
    channel = {
        **{"channel_name": "c", "depth": depth, "backend_depth": 1, "in_flight_count": 1, "deferred_count": 1},
        **{"message_count": 9, "requeue_count": 1, "timeout_count": 1, "client_count": 1, "clients": [_CLIENT]},
        **{"paused": False, "e2e_processing_latency": _LATENCY, "oldest_message_age_seconds": 2.5, "policy": policy},
        **{"dropped_count": 1, "dead_letter_count": 1, "expired_count": 1, "high_depth": 1, "normal_depth": 1},
    }
    return {
        **{"topic_name": name, "channels": [channel], "depth": 0, "backend_depth": 0, "message_count": 9},
        **{"message_bytes": 90, "paused": False, "e2e_processing_latency": _LATENCY, "durability": "fsync"},
        **{"retention": {"time_ms": 1000, "bytes": 5, "earliest": 0}, "policy": {"message_ttl": "1h"}},
        **{"lost_count": 1, "rejected_count": 1, "deduplicated_count": 1, "zone_local_msg_count": 1},
    }


def _info(address: str) -> dict[str, Any]:
    host, port = address.split(":")
    ports = {"tcp_port": int(port) - 1, "http_port": int(port), "start_time": 5}
    return {"version": "1.3.0", "broadcast_address": host, "hostname": host, **ports, "topology_region": "r"}


def documents(address: str, depth: int) -> dict[str, Any]:
    """Return what a sound nsqd at an address answers, by path."""
    counts = {"depth": 1, "in_flight": 1, "deferred": 1, "staying": 1}
    change = {"option": "log_level", "old": "info", "new": ["debug"]}
    return {
        "/info": _info(address),
        "/stats": {
            **_info(address),
            "health": "OK",
            "topics": [_topic("t", depth), _topic("t.dead", 1)],
            "memory": {"heap_in_use_bytes": 5, "gc_total_runs": 1},
            "disk": {"free_bytes": 5, "capacity_bytes": 9, "stored_bytes": 1},
            "replica": AN_OWNER.document(),
        },
        "/v2/channel/messages": {"messages": [_MESSAGE], "more": True},
        "/v2/topic/messages": {"messages": [{**_MESSAGE, "body": "/w==", "encoding": "base64"}], "more": False},
        "/v2/channel/seek": {"position": 1, "skipped": 2, "replayed": 3, "depth": 4},
        "/v2/channel/redrive": {"state": "running", "total": 3, "redriven": 1, "others": 1, "error": ""},
        "/v2/topic/cancel": {"id": _MESSAGE["id"], "released": True, "channels": ["c"]},
        "/v2/topic/policy": {"settings": {"message_ttl": {"value": "1h", "source": "set"}}, "set": {}, "unused": []},
        "/v2/channel/policy": {
            "settings": {"max_attempts": {"value": 5, "source": "set"}, "ordered": {"value": True, "source": "config"}},
            "set": {"max_attempts": 5},
            "unused": ["one"],
        },
        "/channel/pause": {},
        "/v2/drain": {"draining": True, "seconds": 1.5, "seconds_left": None, **counts},
        "/v2/reload": {
            **{"changed": [change], "restart": [change], "files": ["grants"]},
            **{"failed": {"certificates": "none"}, "unchanged": ["max_topics"]},
        },
        "/v2/replica/release": AN_OWNER.document(),
        "/v2/openapi.json": {"paths": {"/v2/channel/seek": {"post": {"parameters": [{"name": "dry_run"}]}}}},
    }


def lookupd_documents() -> dict[str, Any]:
    """Return what a sound nsqlookupd answers, by path."""
    producers = [{**_info(address), "topics": ["t"], "tombstones": [False]} for address in (SOUND, ODD)]
    return {
        "/nodes": {"producers": producers},
        "/lookup": {"channels": ["c"], "producers": producers},
        "/topics": {"topics": ["t", "inactive"]},
        "/channels": {"channels": ["c"]},
    }


# -- odd ones

_TEXTS = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(["\x1b[2J", "../..", "[", "t", "*", "x" * 70])
_NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([-1, 0, 65536, 2**31, 2**53, 2**62, -(2**62), 2**63 - 1, 2**63, -(2**63), 1e308, 5e-324])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


def _places(document: Any) -> Iterator[tuple[Any, ...]]:
    """Iterate over the paths of all values in a document."""
    keys: Any = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in keys:
        yield (key,)
        if isinstance(value, dict | list):
            yield from ((key, *rest) for rest in _places(value))


@st.composite
def odd_documents(draw: Callable[[Any], Any], sound: dict[str, Any]) -> bytes:
    """Draw the bytes of a document: a sound one with odd values at up to three places, or another one."""
    if draw(st.integers(0, 9)) == 0:
        return cast(bytes, draw(st.binary(max_size=20) | JSON.map(lambda value: json.dumps(value).encode())))
    document = copy.deepcopy(sound)
    places = list(_places(sound))
    for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)) if places else ():
        holder: Any = document
        try:
            for key in place[:-1]:
                holder = holder[key]
            if draw(st.booleans()) and isinstance(holder, dict):
                holder[draw(_TEXTS)] = draw(JSON)
            holder[place[-1]] = draw(JSON)
        except (KeyError, IndexError, TypeError):  # the place is in what an odd value has replaced
            continue
    return json.dumps(document).encode()


# -- a cluster of them


class AnsweredCluster(Cluster):
    """A cluster of servers that answer what `answers` has for their address and a path; others do not answer."""

    def __init__(self, answers: Mapping[tuple[str, str], bytes | None], *, through_lookupd: bool = False) -> None:
        self.reactor = MemoryReactorClock()
        addresses: Any = {"lookupds": [LOOKUPD]} if through_lookupd else {"nsqds": [SOUND, ODD]}
        super().__init__(cast(Any, self.reactor), **addresses)
        self.answers = dict(answers)
        self.requests.__dict__["_request"] = self._answered
        self.requests.__dict__["in_thread"] = self._made

    async def _answered(
        self, kind: str, method: str, program: str, address: str, path: str, parameters: Any, body: bytes
    ) -> ServerAnswer:
        answer = self.answers.get((address, path))
        if answer is None:
            raise ServerFailed(f"{method} {address}{path}: no answer")
        return ServerAnswer(program, f"{method} {address}{path}", answer, "0.1.0")

    async def _made(self, work: Callable[[], Any]) -> Any:
        return work()


def answers_of(odd: Mapping[str, bytes] | None = None, *, lookupd: Mapping[str, bytes] | None = None) -> Any:
    """Return the answers of a sound nsqd, of an nsqd that answers some paths oddly, and of an nsqlookupd."""
    found = {
        (address, path): json.dumps(document).encode()
        for address, depth in ((SOUND, SOUND_DEPTH), (ODD, 1))
        for path, document in documents(address, depth).items()
    }
    found |= {(LOOKUPD, path): json.dumps(document).encode() for path, document in lookupd_documents().items()}
    found |= {(ODD, path): body for path, body in (odd or {}).items()}
    return found | {(LOOKUPD, path): body for path, body in (lookupd or {}).items()}


def outcome(asked: Awaitable[Any]) -> Any:
    """Return the result of a call that needs no network; ClusterError is one."""
    results: list[Any] = []
    Deferred.fromCoroutine(asked).addBoth(results.append)  # type: ignore[arg-type]
    (result,) = results
    if isinstance(result, Failure):
        result.trap(ClusterError)  # type: ignore[no-untyped-call]
        return result.value
    return result
