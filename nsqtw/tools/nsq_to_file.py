"""
`nsq_to_file`: writes the messages of topics to files.

Beyond the original: discovery begins at once, and goes on with the other nsqlookupds when one fails; a closed file is
opened again whatever the options; a topic cannot leave the output directory; files that a killed process left in
--work-dir are moved to --output-dir. A message is never given up because it was delivered often, unless max_attempts is
among --consumer-opt: only crashes repeat deliveries here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import attrs
import re2
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThreadPool

from nsqtw.client.options import ClientOptions
from nsqtw.client.twisted import Consumer
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.daemon.logs import log_line
from nsqtw.errors import NsqtwError, OptionError
from nsqtw.foreign_text import one_line
from nsqtw.options.fields import option
from nsqtw.options.types import BOOLEAN, DURATION, INTEGER, LEVELS, TEXT, TEXTS
from nsqtw.printing import complain_lines
from nsqtw.tools.file_names import FileNames, host_identifier
from nsqtw.tools.output_file import FileRules, recover
from nsqtw.tools.program import FAILED, Run, Tool
from nsqtw.tools.sources import STOP_SECONDS, SourceOptions, make_consumer, source_mistake
from nsqtw.tools.topic_archive import TopicArchive

_ANY_ATTEMPTS = "max_attempts,0"

_DEFAULT_DIR = "/tmp"  # NSQ's default


@attrs.define(kw_only=True)
class ToFileOptions(SourceOptions):
    """The options of nsq_to_file."""

    topic: tuple[str, ...] = option(TEXTS, (), "nsq topic (may be given multiple times)")
    topic_pattern: str = option(TEXT, "", "only log topics matching the following pattern")
    topic_refresh: float = option(DURATION, 60.0, "how frequently the topic list should be refreshed")
    channel: str = option(TEXT, "nsq_to_file", "nsq channel")
    max_in_flight: int = option(INTEGER, 200, "max number of messages to allow in flight")
    output_dir: str = option(TEXT, _DEFAULT_DIR, "directory to write output files to")
    work_dir: str = option(TEXT, "", "directory for in-progress files before moving to output-dir")
    datetime_format: str = option(TEXT, "%Y-%m-%d_%H", "strftime compatible format for <DATETIME> in filename format")
    filename_format: str = option(
        TEXT,
        "<TOPIC>.<HOST><REV>.<DATETIME>.log",
        "output filename format (<TOPIC>, <HOST>, <PID>, <DATETIME>, <REV> are replaced. <REV> is increased when file "
        "already exists)",
    )
    host_identifier: str = option(
        TEXT, "", "value to output in log filename in place of hostname. <SHORT_HOST> and <HOSTNAME> are valid"
    )
    gzip: bool = option(BOOLEAN, False, "gzip output files")
    gzip_level: int = option(INTEGER, 6, "gzip compression level 1-9 (1=BestSpeed, 9=BestCompression)")
    skip_empty_files: bool = option(BOOLEAN, False, "skip writing empty files")
    rotate_size: int = option(INTEGER, 0, "rotate the file when it grows bigger than rotate-size bytes")
    rotate_interval: float = option(DURATION, 0.0, "rotate the file every duration")
    sync_interval: float = option(DURATION, 30.0, "sync file to disk every duration")
    http_client_connect_timeout: float = option(DURATION, 2.0, "timeout for HTTP connect")
    http_client_request_timeout: float = option(DURATION, 5.0, "timeout for HTTP request")
    log_level: str = option(TEXT, "info", "set log verbosity: debug, info, warn, error, or fatal")
    log_prefix: str = option(TEXT, "[nsq_to_file] ", "log message prefix")
    consumer_opt: tuple[str, ...] = option(
        TEXTS, (), "option to passthrough to nsq.Consumer (may be given multiple times); a wrong one is ignored"
    )


def _early_mistake(options: ToFileOptions) -> str:
    return "" if options.log_level.lower() in LEVELS else "--log-level is invalid"


def _mistake(options: ToFileOptions) -> str:
    checks = (
        (not options.channel, "--channel is required"),
        (options.http_client_connect_timeout <= 0, "--http-client-connect-timeout should be positive"),
        (options.http_client_request_timeout <= 0, "--http-client-request-timeout should be positive"),
    )
    found = next((text for is_wrong, text in checks if is_wrong), "")
    if found:
        return found
    source = source_mistake(options)
    if source:
        return f"{source}." if source.endswith("required") else source
    if not 1 <= options.gzip_level <= 9:
        return f"invalid --gzip-level value ({options.gzip_level}), should be 1-9"
    if not options.topic and not options.topic_pattern:
        return "--topic or --topic-pattern required"
    if not options.topic and not options.lookupd_http_address:
        return "--lookupd-http-address must be specified when no --topic specified"
    # The original crashes on these two.
    if options.sync_interval <= 0:
        return "--sync-interval should be positive"
    if not options.topic and options.topic_refresh <= 0:
        return "--topic-refresh should be positive"
    return ""


class _Log:
    """Lines on stderr in the format of NSQ's daemons."""

    def __init__(self, options: ToFileOptions, run: Run) -> None:
        self._prefix = options.log_prefix
        self._least = LEVELS[options.log_level.lower()]
        self._run = run

    def debug(self, text: str) -> None:
        self._write("DEBUG", "debug", text)

    def info(self, text: str) -> None:
        self._write("INFO", "info", text)

    def warn(self, text: str) -> None:
        self._write("WARNING", "warn", text)

    def error(self, text: str) -> None:
        self._write("ERROR", "error", text)

    def fatal(self, text: str) -> None:
        """ArchiveLog API."""
        self._write("FATAL", "fatal", text)
        self._run.exit_code = FAILED
        self._run.stop()

    def _write(self, word: str, level: str, text: str) -> None:
        if LEVELS[level] >= self._least:
            complain_lines(log_line(self._prefix, time.time(), word, one_line(text)))


class _Archives:
    """The archives of all topics, with their consumers."""

    def __init__(self, options: ToFileOptions, run: Run, log: _Log) -> None:
        self._options = attrs.evolve(options, consumer_opt=(_ANY_ATTEMPTS, *_right_ones(options.consumer_opt, log)))
        self._run = run
        self._log = log
        self._host = host_identifier(options.host_identifier, socket.gethostname())
        self._rules = FileRules(
            output_dir=options.output_dir,
            work_dir=options.work_dir or options.output_dir,
            gzip_level=options.gzip_level if options.gzip else 0,
            rotate_size=options.rotate_size,
            rotate_interval=options.rotate_interval,
        )
        self._matches = _search(options.topic_pattern, log)
        self._open: dict[str, tuple[TopicArchive, Consumer]] = {}
        self._starting: set[str] = set()

    @property
    def topics(self) -> list[str]:
        """The topics that are written."""
        return [*self._open]

    async def add(self, topics: Iterable[str]) -> None:
        """Begin with the topics that match the pattern and are new. One that fails is logged."""
        for topic in topics:
            if topic in self._open or self._run.is_stopping:
                continue
            if not self._matches(topic):
                self._log.warn(f"skipping topic {topic} (doesn't match pattern {self._options.topic_pattern})")
                continue
            try:
                await self._begin(topic)
            except NsqtwError as error:
                self._log.error(f"couldn't create logger for new topic {topic}: {error}")

    async def _begin(self, topic: str) -> None:
        options, reactor = self._options, self._run.reactor
        names = FileNames.of_topic(
            topic,
            pattern=options.filename_format,
            datetime_pattern=options.datetime_format,
            host=self._host,
            has_revisions=self._rules.needs_revisions,
            is_gzip=options.gzip,
        )
        title = f"{topic}/{options.channel}"
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]] = partial(
            deferToThreadPool, reactor, reactor.getThreadPool()
        )
        archive = TopicArchive(
            title,
            self._rules,
            names,
            max_in_flight=options.max_in_flight,
            skips_empty=options.skip_empty_files,
            clock=time.time,
            call_soon=partial(reactor.callLater, 0),
            in_thread=in_thread,
            log=self._log,
        )
        consumer = make_consumer(
            self._run, options, topic, options.channel, archive.handle, max_in_flight=options.max_in_flight
        )
        archive.source = consumer
        self._open[topic] = (archive, consumer)
        self._starting.add(topic)
        try:
            await in_thread(partial(self._recover, title, names))
            await consumer.start(needs_all=True)
        except NsqtwError:
            await _stop(archive, consumer)
            del self._open[topic]
            if not self._run.is_stopping:
                raise
        finally:
            self._starting.remove(topic)

    def _recover(self, title: str, names: FileNames) -> None:
        """Move files that a killed process left. Runs in a thread."""

        def moved(path: str, target: str) -> None:
            self._log.info(f"[{title}] moved {path}, which a killed process left, to {target}")

        def failed(path: str, error: OSError) -> None:
            self._log.warn(f"[{title}] {path}, which a killed process left, stays there: {error}")

        recover(self._rules, names, moved, failed)

    def tick(self) -> None:
        """Sync all files."""
        for topic, (archive, _) in self._open.items():
            if topic not in self._starting:
                archive.tick()

    def hang_up(self) -> None:
        """Sync and close all files."""
        for archive, _ in self._open.values():
            archive.close()

    async def stop(self) -> None:
        """Stop the consumers, finish everything that is written, and close."""
        stopping = [(consumer, _stop(archive, consumer)) for archive, consumer in self._open.values()]
        for consumer, stopped in stopping:
            requeued = await stopped
            if requeued:
                self._log.warn(f"[{consumer.topic}/{consumer.channel}] requeued {requeued} messages")


def _stop(archive: TopicArchive, consumer: Consumer) -> Deferred[int]:
    """Stop a consumer, finish everything that is written, and close. The result is the number of requeued messages."""
    stopped = consumer.stop(STOP_SECONDS)
    archive.stop()

    async def close() -> int:
        requeued = await stopped
        await archive.wait_closed()
        return requeued

    return Deferred.fromCoroutine(close())


def _right_ones(texts: Iterable[str], log: _Log) -> list[str]:
    """Return the options of the client without wrong ones, as the original does."""
    right = []
    for text in texts:
        try:
            ClientOptions.from_texts([text])
        except OptionError as error:
            log.warn(f"--consumer-opt {text} is ignored: {error}")
        else:
            right.append(text)
    return right


def _search(pattern: str, log: _Log) -> Callable[[str], object]:
    """Return a function that searches for an RE2 pattern. One that cannot be compiled matches nothing."""
    if not pattern:
        return lambda topic: True
    settings = re2.Options()
    settings.log_errors = False
    try:
        found: Callable[[str], object] = re2.compile(pattern, settings).search
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        log.error(f"--topic-pattern {pattern} matches nothing: {text}")
        return lambda topic: False
    return found


class _Discovery:
    """Looks for new topics at once, and every --topic-refresh. Each nsqlookupd is asked for itself."""

    def __init__(self, options: ToFileOptions, run: Run, log: _Log, archives: _Archives) -> None:
        self._options = options
        self._run = run
        self._log = log
        self._archives = archives
        timeouts = Timeouts(options.http_client_connect_timeout, options.http_client_request_timeout)
        self._lookupds = [
            Cluster(run.reactor, lookupds=[address], timeouts=timeouts) for address in options.lookupd_http_address
        ]

    async def go_on(self) -> None:
        """Look for topics until the tool is to stop."""
        while not self._run.is_stopping:
            await DeferredList([Deferred.fromCoroutine(self._ask(lookupd)) for lookupd in self._lookupds])
            await self._run.sleep(self._options.topic_refresh)

    async def _ask(self, lookupd: Cluster) -> None:
        try:
            topics = await lookupd.topics()
        except (NsqtwError, ValueError) as error:
            self._log.error(f"could not retrieve topic list: {error}")
        else:
            await self._archives.add(topics.value)


async def _run(options: ToFileOptions, run: Run) -> None:
    log = _Log(options, run)
    if options.output_dir == _DEFAULT_DIR:
        log.warn(f"files are written to {_DEFAULT_DIR}, where others can write too; --output-dir names another place")
    archives = _Archives(options, run, log)
    run.on_hang_up(archives.hang_up)
    if options.topic:
        begun = Deferred.fromCoroutine(_begin(options, run, log, archives))
    else:
        begun = Deferred.fromCoroutine(_Discovery(options, run, log, archives).go_on())
    begun.addErrback(lambda failure: log.fatal(f"failed to start: {failure.value!r}"))
    while not run.is_stopping:
        await run.sleep(options.sync_interval)
        if not run.is_stopping:
            archives.tick()
    await archives.stop()


async def _begin(options: ToFileOptions, run: Run, log: _Log, archives: _Archives) -> None:
    """Begin with the topics of the command line. They are not tried again."""
    await archives.add(options.topic)
    if not archives.topics and not run.is_stopping:
        log.error("no topic is written: the process keeps running, and does nothing until it is stopped")


TOOL = Tool(
    "nsq_to_file",
    "write the messages of topics to files",
    ToFileOptions,
    _mistake,
    _run,
    refuses_words=True,
    early_mistake=_early_mistake,
)
main = TOOL.main
