"""The steps of the demo: publish, kill the broker half-way, start it again, archive, SQL, replay, count."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from contrib.demo.broker import Broker
from contrib.demo.children import Child
from contrib.demo.errors import DemoError
from contrib.demo.job import NEWS, Job
from contrib.demo.lake import REPLAYED, SUMMARY, Lake
from contrib.demo.ledger import Ledger
from contrib.demo.records import Records
from contrib.demo.report import Kind, Outcome

TOPIC = "records"
#: Channel to the module that consumes it, and what to call its client.
CONSUMERS = {"gnsq": "contrib.demo.stranger", "own": "contrib.demo.consumer"}

#: The publishing is stretched to this; only the kill makes it longer.
_PUBLISH_SECONDS = 8.0
_POLL_SECONDS = 0.05
_TELL_SECONDS = 1.0
#: How often to tell that a step is still under way, when there is nothing new.
_STILL_SECONDS = 5.0
#: How often to look whether the broker has anything left, once Spark is done.
_LEFT_SECONDS = 2.0
#: The messages are kept for the jobs behind the topic.
_RETENTION = "1h"
#: A job of nsqtw-spark that takes longer has failed.
_JOB_SECONDS = 600.0
#: Nothing has moved for this long: give up and count what there is.
_STALLED_SECONDS = 90.0


class Show:
    """One run in `folder`, which is empty at the start and holds everybody's log at the end."""

    def __init__(self, broker: Broker, records: Records, folder: Path) -> None:
        self._broker = broker
        self._records = records
        self._folder = folder
        self._ids = folder / "ids"
        self._killed = folder / "killed"
        self._started = time.monotonic()
        self._total = 0
        self._consumers: list[Child] = []
        self._ledgers: dict[str, Ledger] = {}
        #: What SQL has counted, once `run` has returned.
        self.kinds: list[Kind] = []

    def run(self) -> list[Outcome]:
        """What became of the messages, channel by channel. Raises DemoError when a process dies."""
        with ExitStack() as stack:
            stack.enter_context(self._broker)
            self._broker.start()
            self._say(f"broker: TCP {self._broker.tcp}, HTTP {self._broker.http}")
            self._broker.create(TOPIC, list(CONSUMERS))
            self._broker.retain(TOPIC, _RETENTION)
            for channel, module in CONSUMERS.items():
                stack.enter_context(self._consumer(TOPIC, channel, module))
            self._say(f'topic "{TOPIC}", a consumer each on the channels {" and ".join(CONSUMERS)}')
            spark = stack.enter_context(self._spark())
            published = self._published(spark)
            self._wait_for_half(spark)
            self._kill_and_restart(spark)
            self._wait_for_all(spark)
            outcomes = self._outcomes(published)
            return [*outcomes, *self._behind_the_topic(stack, spark, published)]

    def _behind_the_topic(self, stack: ExitStack, spark: Child, published: set[str]) -> Iterator[Outcome]:
        """Archive the topic, run SQL over it, and replay the archive."""
        lake = Lake(self._broker, TOPIC, self._folder, self._wait_for_job)
        self._say(f'nsqtw-spark archive: topic "{TOPIC}" into Parquet files')
        yield lake.archive(published)
        self._say(f'nsqtw-spark etl: SQL over topic "{TOPIC}" into topic "{SUMMARY}"')
        self.kinds = lake.summarize()
        yield Outcome.of_kinds("sql", "nsqtw-spark etl", published, self.kinds)
        self._say(f'nsqtw-spark replay: the archive into topic "{REPLAYED}", for a consumer')
        self._broker.create(REPLAYED, [REPLAYED])
        stack.enter_context(self._consumer(REPLAYED, REPLAYED, CONSUMERS["own"]))
        lake.replay()
        self._wait(spark, self._has_nothing_left(REPLAYED))
        self._poll_ledgers()
        ledger = self._ledgers[REPLAYED]
        yield Outcome.of(REPLAYED, "nsqtw-spark replay", published, ledger.distinct, ledger.deliveries)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:5.1f} s  {text}", flush=True)

    @contextmanager
    def _consumer(self, topic: str, channel: str, module: str) -> Iterator[None]:
        path = self._folder / f"ledger-{channel}"
        ledger = self._ledgers[channel] = Ledger(path)
        log = self._folder / f"consumer-{channel}.log"
        arguments = (self._broker.tcp, topic, channel, str(path))
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
        path = self._folder / "job.json"
        job.save(path)
        self._say(f"Spark starts, to read {self._records.names()}")
        return Child.python("the Spark job", "contrib.demo.pipeline", [path], self._folder / "spark.log")

    def _published(self, spark: Child) -> set[str]:
        """The ids of all messages, which Spark writes down before it publishes."""
        self._wait(spark, self._ids.exists)
        if not self._ids.exists():
            raise DemoError(f"Spark has not read the records:\n{spark.last_words()}")
        ids = {json.loads(line) for line in self._ids.read_text("utf-8").splitlines()}
        if not ids:
            raise DemoError(f"there is no record in {self._records.names()}")
        self._total = len(ids)
        self._say(f"{self._total} records, publishing them")
        return ids

    def _wait_for_half(self, spark: Child) -> None:
        self._wait(spark, lambda: 2 * self._delivered() >= self._total)

    def _kill_and_restart(self, spark: Child) -> None:
        self._broker.kill()
        self._killed.touch()
        doing = "is still publishing" if spark.exit_code is None else "has published everything"
        self._say(f"SIGKILL to the broker: {self._delivered()} of {self._total} delivered, Spark {doing}")
        self._broker.start()
        self._say("the broker is there again, with the same ports and the same data")

    def _wait_for_all(self, spark: Child) -> None:
        """Until everything has arrived, or the broker has nothing left that could still arrive."""
        has_nothing_left = self._has_nothing_left(TOPIC)

        def done() -> bool:
            return spark.exit_code == 0 and (self._delivered() >= self._total or has_nothing_left())

        self._wait(spark, done)
        self._poll_ledgers()

    def _has_nothing_left(self, topic: str) -> Callable[[], bool]:
        """Return a function that asks the broker, now and then, whether it has nothing left to deliver."""
        looked = time.monotonic()

        def is_empty() -> bool:
            nonlocal looked
            if time.monotonic() - looked < _LEFT_SECONDS:
                return False
            looked = time.monotonic()
            return self._broker.left(topic) == 0

        return is_empty

    def _wait_for_job(self, job: Child) -> int:
        """Wait for the end of a job, and return its exit code. Raises DemoError when it does not end."""
        began = told = time.monotonic()
        while (code := job.exit_code) is None:
            self._broker.must_run()
            now = time.monotonic()
            if now - began > _JOB_SECONDS:
                raise DemoError(f"{job.name} does not end:\n{job.last_words()}")
            if now - told >= _STILL_SECONDS:
                told = now
                self._say(f"  {job.name}: {_last_line(job) or f'at work for {now - began:.0f} s'}")
            time.sleep(_POLL_SECONDS)
        return code

    def _poll_ledgers(self) -> None:
        for ledger in self._ledgers.values():
            ledger.poll()

    def _wait(self, spark: Child, done: Callable[[], bool]) -> None:
        """Until `done`, or until nothing has moved for too long. Raises DemoError when a process dies."""
        told = moved = time.monotonic()
        seen = told_of = self._news(spark)
        while True:
            self._poll_ledgers()
            if done():
                return
            self._must_run(spark)
            now = time.monotonic()
            news = self._news(spark)
            if news != seen:
                seen, moved = news, now
            if now - told >= (_TELL_SECONDS if news != told_of else _STILL_SECONDS):
                told, told_of = now, news
                self._say(f"  {news or 'Spark starts'}")
            if now - moved > _STALLED_SECONDS:
                self._say(f"nothing has moved for {_STALLED_SECONDS:.0f} s, giving up")
                return
            time.sleep(_POLL_SECONDS)

    def _must_run(self, spark: Child) -> None:
        self._broker.must_run()
        for consumer in self._consumers:
            consumer.must_run()
        if spark.exit_code != 0:
            spark.must_run()

    def _news(self, spark: Child) -> str:
        """How far things are, in a line."""
        if self._total:
            parts = (f"{channel} {len(ledger.distinct)}" for channel, ledger in self._ledgers.items())
            return f"delivered of {self._total}: {', '.join(parts)}"
        lines = spark.log.read_text("utf-8", "replace").splitlines()
        return next((line.removeprefix(NEWS) for line in reversed(lines) if line.startswith(NEWS)), "")

    def _delivered(self) -> int:
        """How many messages even the slower channel has had."""
        return min(len(ledger.distinct) for ledger in self._ledgers.values())

    def _outcomes(self, published: set[str]) -> list[Outcome]:
        clients = {"gnsq": f"gnsq {version('gnsq')} (PyPI)", "own": "our consumer"}
        return [
            Outcome.of(channel, clients[channel], published, ledger.distinct, ledger.deliveries)
            for channel, ledger in self._ledgers.items()
        ]


def _last_line(job: Child) -> str:
    """The last line that a job has written about its work."""
    lines = job.log.read_text("utf-8", "replace").splitlines()
    return next((line for line in reversed(lines) if line.strip() and not line.startswith("WARNING: ")), "")
