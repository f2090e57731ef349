"""The course of events: start everything, kill the broker half-way, start it again, count."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from contrib.demo.broker import Broker
from contrib.demo.children import Child
from contrib.demo.errors import DemoError
from contrib.demo.job import Job
from contrib.demo.ledger import Ledger
from contrib.demo.records import Records
from contrib.demo.report import Outcome

TOPIC = "records"
#: Channel to the module that consumes it, and what to call its client.
CONSUMERS = {"gnsq": "contrib.demo.stranger", "own": "contrib.demo.consumer"}

#: The publishing is stretched to this; only the kill makes it longer.
_PUBLISH_SECONDS = 8.0
_POLL_SECONDS = 0.02
_TELL_SECONDS = 1.0
#: Nothing has moved for this long: give up and count what there is.
_STALLED_SECONDS = 90.0
#: What has been finished last may take a moment to leave the broker's books.
_SETTLE_SECONDS = 5.0


class Show:
    """One run in `folder`, which is empty at the start and holds everybody's log at the end."""

    def __init__(self, broker: Broker, records: Records, folder: Path) -> None:
        self._broker = broker
        self._records = records
        self._folder = folder
        self._ids = folder / "ids"
        self._killed = folder / "killed"
        self._started = time.monotonic()
        self._consumers: list[Child] = []
        self._ledgers: dict[str, Ledger] = {}

    def run(self) -> list[Outcome]:
        """What became of the messages, channel by channel. Raises DemoError when a process dies."""
        with ExitStack() as stack:
            stack.enter_context(self._broker)
            self._broker.start()
            self._say(f"broker: TCP {self._broker.tcp}, HTTP {self._broker.http}")
            self._broker.create(TOPIC, list(CONSUMERS))
            for channel, module in CONSUMERS.items():
                stack.enter_context(self._consumer(channel, module))
            self._say(f'topic "{TOPIC}", a consumer each on the channels {" and ".join(CONSUMERS)}')
            spark = stack.enter_context(self._spark())
            published = self._published(spark)
            self._wait_for_half(spark, len(published))
            self._kill_and_restart(spark, len(published))
            self._wait_for_all(spark, len(published))
            self._say_what_is_left()
            return self._outcomes(published)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:5.1f} s  {text}", flush=True)

    @contextmanager
    def _consumer(self, channel: str, module: str) -> Iterator[None]:
        path = self._folder / f"ledger-{channel}"
        ledger = self._ledgers[channel] = Ledger(path)
        log = self._folder / f"consumer-{channel}.log"
        arguments = [self._broker.tcp, TOPIC, channel, path]
        with Child.python(f'the consumer on "{channel}"', module, arguments, log) as child:
            self._consumers.append(child)
            yield
        ledger.close()

    def _spark(self) -> Child:
        scratch = self._folder / "spark"
        scratch.mkdir()
        sources = (self._records.events, self._records.dpkg_status, self._records.git_log)
        events, dpkg_status, git_log = (str(path) if path else None for path in sources)
        job = Job(
            http_address=self._broker.http,
            topic=TOPIC,
            ids=str(self._ids),
            killed=str(self._killed),
            scratch=str(scratch),
            seconds=_PUBLISH_SECONDS,
            events=events,
            dpkg_status=dpkg_status,
            git_log=git_log,
        )
        job.save(self._folder / "job.json")
        self._say(f"Spark: starts, reads {self._records.names()}")
        log = self._folder / "spark.log"
        return Child.python("the Spark job", "contrib.demo.pipeline", [self._folder / "job.json"], log)

    def _published(self, spark: Child) -> set[str]:
        """The ids of all messages, which Spark writes down before it publishes."""
        self._wait(spark, self._ids.exists, total=None)
        ids = {json.loads(line) for line in self._ids.read_text("utf-8").splitlines()}
        if not ids:
            raise DemoError(f"there is no record in {self._records.names()}")
        self._say(f"Spark: {len(ids)} records read and transformed, publishing them")
        return ids

    def _wait_for_half(self, spark: Child, total: int) -> None:
        self._wait(spark, lambda: 2 * self._delivered_to_all() >= total, total)

    def _kill_and_restart(self, spark: Child, total: int) -> None:
        self._broker.kill()
        self._killed.touch()
        doing = "is still publishing" if spark.exit_code is None else "has published everything"
        self._say(f"SIGKILL to the broker: {self._delivered_to_all()} of {total} delivered; Spark {doing}")
        self._broker.start()
        self._say("broker: there again, same ports, same data")

    def _wait_for_all(self, spark: Child, total: int) -> None:
        self._wait(spark, lambda: spark.exit_code == 0 and self._delivered_to_all() >= total, total)

    def _wait(self, spark: Child, done: Callable[[], bool], total: int | None) -> None:
        """Until `done`, or until nothing has moved for too long. Raises DemoError when a process dies."""
        told = moved = time.monotonic()
        before: list[int] = []
        while True:
            for ledger in self._ledgers.values():
                ledger.poll()
            if done():
                return
            self._must_run(spark)
            now = time.monotonic()
            deliveries = [ledger.deliveries for ledger in self._ledgers.values()]
            if deliveries != before:
                before, moved = deliveries, now
            if now - moved > _STALLED_SECONDS:
                self._say(f"nothing has moved for {_STALLED_SECONDS:.0f} s, giving up")
                return
            if total is not None and now - told >= _TELL_SECONDS:
                told = now
                self._say(self._progress(total))
            time.sleep(_POLL_SECONDS)

    def _must_run(self, spark: Child) -> None:
        self._broker.must_run()
        for consumer in self._consumers:
            consumer.must_run()
        if spark.exit_code != 0:
            spark.must_run()

    def _progress(self, total: int) -> str:
        parts = (f"{channel} {len(ledger.distinct)}" for channel, ledger in self._ledgers.items())
        return f"delivered: {', '.join(parts)} of {total}"

    def _delivered_to_all(self) -> int:
        """How many messages even the slowest channel has had."""
        return min(len(ledger.distinct) for ledger in self._ledgers.values())

    def _say_what_is_left(self) -> None:
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            left = {channel: depths.left for channel, depths in self._broker.depths(TOPIC).items()}
            if not any(left.values()) or time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        for ledger in self._ledgers.values():
            ledger.poll()
        self._say("broker: " + ", ".join(f"{left[channel]} left on {channel}" for channel in CONSUMERS))

    def _outcomes(self, published: set[str]) -> list[Outcome]:
        clients = {"gnsq": f"gnsq {version('gnsq')} (PyPI)", "own": "our consumer"}
        return [
            Outcome.of(channel, clients[channel], published, ledger.distinct, ledger.deliveries)
            for channel, ledger in self._ledgers.items()
        ]
