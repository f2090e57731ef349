"""
Deduplication against a model, through random histories with crashes and failures.

The model knows when each id was stored. After each step the broker has stored just what the model says: a publish whose
id is known in the window is answered and not stored, any other one is stored or refused. A crash changes nothing of
that, whatever was saved.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from nsqtw.errors import BackendError
from tests.core.policy.deduplicating import DeduplicatingHarness

IDS = ("", "one", "two", "three", "four")
WINDOW = 30.0
Publish = list[str]


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, float] = {}
        self.stored: list[bytes] = []
        self.serial = 0
        self.waiting: list[tuple[list[tuple[str, bytes]], list[Exception | None]]] = []
        """Publishes of the commit on its way, and those that wait for the next one."""

    @initialize(durability=st.sampled_from(["os", "fsync"]))
    def start(self, durability: str) -> None:
        self.core = DeduplicatingHarness(window=WINDOW, durability=durability)
        self.core.channel()
        self.core.save()
        self.window = WINDOW

    # -- publishing

    def _publish(self, ids: Publish) -> None:
        messages = []
        for one in ids:
            messages.append((one, b"%d" % self.serial))
            self.serial += 1
        self.waiting.append((messages, self.core.publish(*messages)))

    def _store(self, *, fails: bool = False) -> None:
        """The publishes are committed, or fail."""
        waiting, self.waiting = self.waiting, []
        for messages, answers in waiting:
            assert [str(answer) for answer in answers] == ["full" if fails else "None"]
            for one, body in [] if fails else messages:
                known_since = self.known.get(one)
                if one and known_since is not None and self.core.now - known_since <= self.window:
                    continue
                self.stored.append(body)
                if one:
                    self.known[one] = self.core.now
        self._check()

    def _check(self) -> None:
        log = self.core.topic().log
        sequence, bodies = 0, []
        while segments := log.read(sequence, 1 << 20):
            for segment in segments:
                bodies += [segment.slice(index, index + 1)[34:] for index in range(segment.count)]
            sequence = segments[-1].end
        assert bodies == self.stored

    def _fail(self, writes: list, durable: bool) -> dict:
        return {queue: BackendError("full") for queue, _ in writes}

    @rule(publishes=st.lists(st.lists(st.sampled_from(IDS), min_size=1, max_size=4), min_size=1, max_size=3))
    def publish(self, publishes: list[Publish]) -> None:
        for ids in publishes:
            self._publish(ids)
        self.core.turn()
        self._store()

    @rule(publishes=st.lists(st.lists(st.sampled_from(IDS), min_size=1, max_size=4), min_size=1, max_size=3))
    def publish_and_fail(self, publishes: list[Publish]) -> None:
        commit = self.core.backend.commit
        self.core.backend.commit = self._fail
        for ids in publishes:
            self._publish([*ids, ""])  # all repeats: nothing is written, and nothing fails
        self.core.turn()
        self.core.backend.commit = commit
        self._store(fails=True)

    @precondition(lambda self: self.core.options.durability == "fsync")
    @rule(
        first=st.lists(st.sampled_from(IDS), min_size=1, max_size=3),
        second=st.lists(st.sampled_from(IDS), min_size=1, max_size=3),
        fails=st.booleans(),
    )
    def publish_while_one_is_synced(self, first: Publish, second: Publish, fails: bool) -> None:
        self.core.lands_at_once = False
        self._publish([*first, ""])
        self.core.turn()
        self._publish(second)
        self.core.turn()
        then, self.waiting = self.waiting[1:], self.waiting[:1]
        commit = self.core.backend.commit
        if fails:
            self.core.backend.commit = self._fail
        self.core._land()
        self.core.backend.commit = commit
        self._store(fails=fails)
        self.waiting = then
        self.core.lands_at_once = True
        self.core.turn()
        self._store()

    # -- time

    @rule(seconds=st.sampled_from([1.0, 12.0, WINDOW]))
    def wait(self, seconds: float) -> None:
        self.core.wait(seconds)

    @rule(window=st.sampled_from([10.0, WINDOW]))
    def change_window(self, window: float) -> None:
        """What was removed for a shorter window is not known in a longer one, so the model forgets it as well."""
        self.core.change_window(window)
        self.core.save()
        oldest = self.core.now - min(window, self.window)
        self.known = {one: since for one, since in self.known.items() if since >= oldest}
        self.core.positions.saved_ids["t"] = {
            one.hash: one
            for one in self.core.positions.saved_ids["t"].values()
            if one.published_ms >= self.core.broker.pending_clock.ms_at(oldest)
        }
        self.window = window

    # -- saving and dying

    @rule()
    def save(self) -> None:
        self.core.save()

    @rule()
    def save_fails(self) -> None:
        self.core.save(BackendError("full"))

    @rule(ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=3), fails=st.booleans())
    def publish_while_saving(self, ids: Publish, fails: bool) -> None:
        save = self.core.begin_save()
        if not fails:
            self.core.positions.save(save.checkpoint)
        self._publish(ids)
        self.core.turn()
        self._store()
        self.core.broker.checkpointer.end(save, BackendError("full") if fails else None)

    @rule()
    def crash_when_saved(self) -> None:
        save = self.core.begin_save()
        self.core.positions.save(save.checkpoint)
        self.crash()

    @rule()
    def crash(self) -> None:
        self.core.crash()
        self._check()

    @rule()
    def crash_and_jump(self) -> None:
        """The wall clock was set while the broker ran, which is saved; nothing moves it while none runs."""
        self.core.wall_ns += 3600 * 10**9
        self.core.broker.follow_wall(self.core.wall_ns, self.core.now)
        self.core.save()
        self.crash()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
