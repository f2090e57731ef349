"""
The sampler: it asks all nodes for their figures every few seconds, and adds them to the history.

With an open page it asks every LIVE_SECONDS, otherwise every QUIET_SECONDS to keep the history. A round
that takes long makes the next one wait: the sampler uses at most a quarter of the time. The figures are added in steps
that share the reactor with everything else.

A node that does not answer is kept for an hour and marked (`NodeState.is_gone`); the figures of the others are not
affected. When no nsqlookupd says which nodes there are, none is asked and none marked. In the first minute nodes answer
one after the other, which is no rise of anything: the history begins anew with each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from nsqtw.admin.history import CLUSTER, History, Subject
from nsqtw.cluster.answers import MAX_PARTS
from nsqtw.cluster.http import NSQD
from nsqtw.cluster.merge import node_order
from nsqtw.cluster.model import ClusterStats, NodeStats, Partial, TopicStats
from nsqtw.cluster.rates import RateMeter, Rates
from nsqtw.errors import NoServerAnswered, NsqtwError

LIVE_SECONDS = 2.0
QUIET_SECONDS = 30.0
STEP_SECONDS = 5.0
"""The shortest time between two samples of the history."""
WATCHED_SECONDS = 60.0
"""Time after a request for a page in which the page counts as open."""
KEPT_SECONDS = 3600.0
"""
Time for which a node that does not answer is shown, unless those that left after it have MAX_PARTS topics and channels.
"""
SETTLE_SECONDS = 60.0
"""Time after the start in which a node that answers for the first time makes the history begin anew."""
_SHARE = 4.0
_RATES = frozenset(("in", "out", "requeue", "timeout"))
_STEP = 100
"""Subjects in a step."""

_log = Logger()


class Source(Protocol):
    """The cluster, as the sampler sees it."""

    async def stats(self) -> Partial[ClusterStats]:
        """Return the figures of all nodes. NsqtwError."""


@attrs.frozen
class NodeState:
    """The last answer of a node. `seen` is its time in the clock of the history."""

    stats: NodeStats
    seen: float
    is_gone: bool = False


class Sampler:
    """Samples of a cluster. `latest` is the newest answer, `error` the reason for none, `history` the earlier ones."""

    def __init__(self, source: Source, reactor: IReactorTime) -> None:
        self.history = History()
        self.latest: Partial[ClusterStats] | None = None
        self.error = ""
        self.nodes: Mapping[str, NodeState] = {}
        self._source = source
        self._reactor = reactor
        self._meter = RateMeter()
        self._viewed_at = -math.inf
        self._recorded_at = -math.inf
        self._started_at = -math.inf
        self._timer: IDelayedCall | None = None
        self._round: Deferred[None] | None = None
        self._is_running = False
        self._is_asking = False
        self._listeners: list[Callable[[], None]] = []
        self._cooperator = Cooperator(scheduler=lambda tick: reactor.callLater(0, tick))

    # -- life

    def start(self) -> None:
        """Begin to ask."""
        self._is_running = True
        self._started_at = self._reactor.seconds()
        self._begin_round()

    def stop(self) -> None:
        """Ask no more."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is not None:
            self._round.cancel()
        self._cooperator.stop()

    @property
    def now(self) -> float:
        """The time in the clock of the history."""
        return self._reactor.seconds()

    def record_view(self) -> None:
        """Record a request for a page: it counts as open for a while."""
        was_quiet = not self._is_watched()
        self._viewed_at = self._reactor.seconds()
        if was_quiet and self._timer is not None:
            self._timer.reset(0)

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each round, until the returned function is called."""
        self._listeners.append(listener)
        self.record_view()
        return lambda: self._listeners.remove(listener)

    async def refresh(self) -> None:
        """Ask now, and wait for the answer; for a page that shows what an action has changed."""
        if self._is_asking:  # it may have asked before the change
            await self._next_answer()
        answer = self._next_answer()
        if not self._is_asking:
            self._begin_round()
        await answer

    def _next_answer(self) -> Deferred[None]:
        """Return what fires at the end of the next round."""
        waiting: Deferred[None] = Deferred()
        leave = self.watch(lambda: waiting.callback(None))
        return waiting.addBoth(lambda _: leave())

    def _is_watched(self) -> bool:
        return bool(self._listeners) or self._reactor.seconds() - self._viewed_at < WATCHED_SECONDS

    # -- rounds

    def _begin_round(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._is_asking = True
        started = self._reactor.seconds()
        self._round = ensureDeferred(self._ask())
        self._round.addErrback(self._failed)
        self._round.addBoth(lambda _: self._end_round(started))

    def _failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError):
            _log.failure("a round of the sampler failed", failure)
            self.error = f"unforeseen {type(failure.value).__name__}: the figures may be old; the log says more"

    def _end_round(self, started: float) -> None:
        self._is_asking = False
        if not self._is_running:
            return
        pause = LIVE_SECONDS if self._is_watched() else QUIET_SECONDS
        taken = self._reactor.seconds() - started
        self._timer = self._reactor.callLater(max(pause - taken, taken * _SHARE), self._begin_round)
        for listener in list(self._listeners):
            listener()

    async def _ask(self) -> None:
        try:
            self.latest, self.error = await self._source.stats(), ""
            stats = self.latest.value
        except NsqtwError as error:
            self.error = str(error)
            stats = ClusterStats()
            are_asked = not isinstance(error, NoServerAnswered) or error.program == NSQD
        else:
            are_asked = True
        now = self._reactor.seconds()
        known = self.nodes.keys()
        if are_asked:
            self._mark_nodes(stats, now)
        if now - self._started_at < SETTLE_SECONDS and self.nodes.keys() - known:
            self.history = History()
        if now - self._recorded_at >= STEP_SECONDS - LIVE_SECONDS / 2 and self.latest is not None:
            self._recorded_at = now
            await self._cooperator.cooperate(self._record(stats, now)).whenDone()

    def _mark_nodes(self, stats: ClusterStats, now: float) -> None:
        states = {found.node.http_address: NodeState(found, now) for found in stats.nodes}
        kept = 0
        for name, state in sorted(self.nodes.items(), key=lambda each: -each[1].seen):
            if name in states:
                continue
            kept += state.stats.part_count
            if now - state.seen < KEPT_SECONDS and kept <= MAX_PARTS:
                states[name] = attrs.evolve(state, is_gone=True)
            else:
                self._meter.forget(name)
        self.nodes = dict(sorted(states.items(), key=lambda each: node_order(each[1].stats.node.hostname, each[0])))

    # -- the history

    def _record(self, stats: ClusterStats, now: float) -> Iterator[None]:
        figures: dict[Subject, dict[str, float]] = {}
        unknown: set[Subject] = set()
        for node in stats.nodes:
            yield from self._add_node(node, now, figures, unknown)
        for subject in unknown & figures.keys():
            figures[subject] = {name: value for name, value in figures[subject].items() if name not in _RATES}
        _set_levels(stats, figures)
        self.history.begin(now)
        for number, (subject, values) in enumerate(figures.items()):
            self.history.put(subject, values)
            if number % _STEP == _STEP - 1:
                yield
        yield from self.history.end()

    def _add_node(
        self, node: NodeStats, now: float, figures: dict[Subject, dict[str, float]], unknown: set[Subject]
    ) -> Iterator[None]:
        """
        Add the figures of a node to those of the cluster, and of its topics and channels; to `unknown` those that have
        no rates in this sample, because the node has none yet.
        """
        totals = [_values(figures, CLUSTER), _values(figures, ("node", node.node.http_address))]
        _count_waiting(node.topics, totals)
        for number, (subject, rates) in enumerate(self._meter.rates(node, now)):
            if rates is None:
                unknown.update((CLUSTER, ("topic", subject[1]), subject))
            else:
                _add_rates(subject, rates, figures, totals)
            if number % _STEP == _STEP - 1:
                yield


def _add_rates(
    subject: Subject, rates: Rates, figures: dict[Subject, dict[str, float]], totals: list[dict[str, float]]
) -> None:
    """Add the rates of a topic or channel of a node to its figures and to those of the node and the cluster."""
    values = _values(figures, subject)
    _add(values, "in", rates.incoming)
    if subject[0] == "topic":
        for total in totals:
            _add(total, "in", rates.incoming)
        return
    _add(values, "requeue", rates.requeued)
    _add(values, "timeout", rates.timed_out)
    for receiver in (values, _values(figures, ("topic", subject[1])), *totals):
        _add(receiver, "out", rates.outgoing)


def _values(figures: dict[Subject, dict[str, float]], subject: Subject) -> dict[str, float]:
    return figures.setdefault(subject, {})


def _add(values: dict[str, float], name: str, amount: float) -> None:
    values[name] = values.get(name, 0.0) + amount


def _count_waiting(topics: tuple[TopicStats, ...], totals: list[dict[str, float]]) -> None:
    """Add up the levels of a node."""
    for total in totals:
        _add(total, "depth", sum(topic.total_depth for topic in topics))
        _add(total, "in_flight", sum(topic.in_flight_count for topic in topics))


def _set_levels(stats: ClusterStats, figures: dict[Subject, dict[str, float]]) -> None:
    """Set the levels of all topics and channels."""
    for topic in stats.topics.values():
        _values(figures, ("topic", topic.topic_name))["depth"] = topic.total_depth
        for channel in topic.channels:
            values = _values(figures, ("channel", topic.topic_name, channel.channel_name))
            values["depth"] = channel.depth
            values["in_flight"] = channel.in_flight_count
            values["deferred"] = channel.deferred_count


def waiting(topic: TopicStats) -> int:
    """Return the messages that wait in a topic and in all its channels."""
    return topic.total_depth
