"""
The live pages that are open: how many there may be, and when each is made.

After each round of the sampler they are made a few a turn, so that many of them do not keep other requests waiting. A
page that several connections of the same user show is made once a round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from typing import Any

from twisted.internet.defer import Deferred

from nsqtw.runtime.long_work import LongWork
from nsqtw.runtime.reactor import Reactor

MAX_PAGES = 500
MAX_PAGES_OF_USER = 50
RETRY_SECONDS = 10
"""Time after which a browser may ask again for a live page that it was refused."""

Watch = Callable[[Callable[[], None]], Callable[[], None]]
"""Has a function called after each round, until the returned function is called."""


class LivePages:
    """The live pages of one nsqadmin. `watch` is the sampler's."""

    def __init__(self, reactor: Reactor, watch: Watch) -> None:
        self._watch = watch
        self._long_work = LongWork(reactor, reactor.seconds)
        self._updates: dict[object, Callable[[], None]] = {}
        self._counts: Counter[str] = Counter()
        self._leave: Callable[[], None] | None = None
        self._made: dict[Hashable, _Making] = {}
        self._is_updating = False

    def has_room(self, owner: str) -> bool:
        """Return whether `owner`, a user or the address of one that is not known, may open another page."""
        return len(self._updates) < MAX_PAGES and self._counts[owner] < MAX_PAGES_OF_USER

    def watch_for(self, owner: str) -> Watch:
        """Return the function with which a page of `owner` is entered, and has its updates."""

        def watch(update: Callable[[], None]) -> Callable[[], None]:
            page = object()
            self._updates[page] = update
            self._counts[owner] += 1
            if self._leave is None:
                self._leave = self._watch(self._begin)

            def leave() -> None:
                del self._updates[page]
                self._counts[owner] -= 1
                if not self._counts[owner]:
                    del self._counts[owner]
                if not self._updates and self._leave is not None:
                    self._leave()
                    self._leave = None
                    self._made.clear()

            return leave

        return watch

    async def shared(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Return the page with a key: what `make` returns, or has returned in this round."""
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = _Making(make())
        return await making.outcome()

    def _begin(self) -> None:
        """A round is over: make the pages. When those of the round before are not done yet, they go on instead."""
        if self._is_updating:
            return
        self._made.clear()
        self._is_updating = True
        self._long_work.add(self._update_all())

    def _update_all(self) -> Iterator[None]:
        try:
            for page in list(self._updates):
                update = self._updates.get(page)
                if update is not None:
                    update()
                yield
        finally:
            self._is_updating = False


class _Making:
    """A page that is made once for all that wait for it."""

    def __init__(self, making: Coroutine[Any, Any, str]) -> None:
        self._result: Any = None
        self._is_done = False
        self._waiting: list[Deferred[str]] = []
        Deferred.fromCoroutine(making).addBoth(self._end)

    def outcome(self) -> Awaitable[str]:
        """Return what fires with the page or a failure. To cancel it does not end the making."""
        waiting: Deferred[str] = Deferred()
        if self._is_done:
            waiting.callback(self._result)
        else:
            self._waiting.append(waiting)
        return waiting

    def _end(self, result: Any) -> None:
        self._result, self._is_done = result, True
        for waiting in self._waiting:
            if not waiting.called:
                waiting.callback(result)
        self._waiting.clear()
