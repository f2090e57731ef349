"""
`nsq_to_file`: writes the messages of topics to files (suite specification 3.1).

Beyond the original: discovery begins at once, and goes on with the other nsqlookupds when one fails; a closed file is
opened again whatever the options; a topic cannot leave the output directory.
"""

from __future__ import annotations

import socket
import sys
import time
from datetime import datetime
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from nsqtw.client.http import HttpQuery
from nsqtw.client.lookup import ACCEPT, answer_of
from nsqtw.client.twisted import TwistedLoop
from nsqtw.errors import NsqtwError
from nsqtw.options.fields import option
from nsqtw.options.types import BOOLEAN, DURATION, INTEGER, LEVELS, TEXT, TEXTS
from nsqtw.tools.file_names import FileNames, host_identifier
from nsqtw.tools.output_file import FileRules
from nsqtw.tools.program import Run, Tool
from nsqtw.tools.sources import STOP_SECONDS, SourceOptions, make_consumer, source_mistake
from nsqtw.tools.topic_archive import TopicArchive


@attrs.define(kw_only=True)
class ToFileOptions(SourceOptions):
    """The options of nsq_to_file."""

    topic: tuple[str, ...] = option(TEXTS, (), "nsq topic (may be given multiple times)")
    topic_pattern: str = option(TEXT, "", "only log topics matching the following pattern")
    topic_refresh: float = option(DURATION, 60.0, "how frequently the topic list should be refreshed")
    channel: str = option(TEXT, "nsq_to_file", "nsq channel")
    max_in_flight: int = option(INTEGER, 200, "max number of messages to allow in flight")
    output_dir: str = option(TEXT, "/tmp", "directory to write output files to")  # noqa: S108
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


def _mistake(options: ToFileOptions) -> str:
    checks = (
        (options.log_level.lower() not in LEVELS, "--log-level is invalid"),
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
    return ""


class _Log:
    """Lines on stderr in the format of NSQ's daemons."""

    def __init__(self, options: ToFileOptions, run: Run) -> None:
        self._prefix = options.log_prefix
        self._least = LEVELS[options.log_level.lower()]
        self._run = run

    def info(self, text: str) -> None:
        self.write("INFO", 2, text)

    def warn(self, text: str) -> None:
        self.write("WARNING", 3, text)

    def error(self, text: str) -> None:
        self.write("ERROR", 4, text)

    def fatal(self, text: str) -> None:
        """ArchiveLog API."""
        self.write("FATAL", 5, text)
        self._run.exit_code = 1
        self._run.stop()

    def write(self, word: str, level: int, text: str) -> None:
        """Write a line if its level is high enough."""
        if level >= self._least:
            moment = datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")
            sys.stderr.write(f"{self._prefix}{moment} {word}: {text}\n")


class _Archives:
    """The archives of all topics."""

    def __init__(self, options: ToFileOptions, run: Run) -> None:
        self._options = options
        self._run = run
        self.log = _Log(options, run)
        self._host = host_identifier(options.host_identifier, socket.gethostname())
        output_dir = options.output_dir
        self._rules = FileRules(
            output_dir=output_dir,
            work_dir=options.work_dir or output_dir,
            gzip_level=options.gzip_level if options.gzip else 0,
            rotate_size=options.rotate_size,
            rotate_interval=options.rotate_interval,
        )
        self._pattern = _compiled(options.topic_pattern)
        self.open: dict[str, TopicArchive] = {}

    async def add(self, topics: list[str]) -> None:
        """Begin with the topics that match the pattern and are new. One that fails is logged."""
        for topic in topics:
            if topic in self.open or self._run.is_stopping:
                continue
            if self._pattern is not None and not self._pattern(topic):
                self.log.warn(f"skipping topic {topic} (doesn't match pattern {self._options.topic_pattern})")
                continue
            try:
                await self._begin(topic)
            except (NsqtwError, OSError) as error:
                self.log.error(f"couldn't create logger for new topic {topic}: {error}")

    async def _begin(self, topic: str) -> None:
        options = self._options
        names = FileNames.of_topic(
            topic,
            pattern=options.filename_format,
            datetime_pattern=options.datetime_format,
            host=self._host,
            has_revisions=self._rules.needs_revisions,
            is_gzip=options.gzip,
        )
        archive = TopicArchive(
            topic,
            self._rules,
            names,
            max_in_flight=options.max_in_flight,
            skips_empty=options.skip_empty_files,
            clock=time.time,
            call_soon=lambda function: self._run.reactor.callLater(0, function),
            log=self.log,
        )
        archive.begin()
        consumer = make_consumer(
            self._run, options, topic, options.channel, archive.handle, max_in_flight=options.max_in_flight
        )
        archive.consumer = consumer
        self.open[topic] = archive
        try:
            await consumer.start(needs_all=True)
        except NsqtwError:
            del self.open[topic]
            await consumer.stop(0)
            raise

    def tick(self) -> None:
        """Sync all files."""
        for archive in self.open.values():
            archive.tick()

    def hang_up(self) -> None:
        """Sync and close all files."""
        for archive in self.open.values():
            archive.close()

    async def stop(self) -> None:
        """Stop the consumers, finish everything that is written, and close."""
        stops = []
        for archive in self.open.values():
            assert archive.consumer is not None
            stops.append(archive.consumer.stop(STOP_SECONDS))
            archive.sync()
        for stopped in stops:
            requeued = await stopped
            if requeued:
                self.log.warn(f"requeued {requeued} messages")
        for archive in self.open.values():
            archive.close()


def _compiled(pattern: str) -> Any:
    """Return a function that searches for an RE2 pattern. One that cannot be compiled matches nothing."""
    if not pattern:
        return None
    import re2

    try:
        return re2.compile(pattern).search
    except re2.error:
        return lambda topic: None


async def _topics(options: ToFileOptions, run: Run, log: _Log) -> list[str]:
    """Return the topics that the nsqlookupds know. One that fails is logged."""
    found: set[str] = set()
    loop = TwistedLoop(run.reactor)
    for address in options.lookupd_http_address:
        url = address if "://" in address else f"http://{address}"
        query = HttpQuery(loop, f"{url.rstrip('/')}/topics", headers={"Accept": ACCEPT})
        try:
            answer = await query.run(options.http_client_connect_timeout, options.http_client_request_timeout)
            known = answer_of(answer.status, answer.headers.get("x-nsq-content-type", ""), answer.body)
        except NsqtwError as error:
            log.error(f"could not retrieve topic list: {error}")
            continue
        found.update(str(topic) for topic in known.get("topics") or ())
    return sorted(found)


async def _run(options: ToFileOptions, run: Run) -> None:
    archives = _Archives(options, run)
    run.on_hang_up(archives.hang_up)
    if options.topic:
        await archives.add([*options.topic])
    else:
        Deferred.fromCoroutine(_discover(options, run, archives))
    while not run.is_stopping:
        await run.sleep(options.sync_interval)
        if not run.is_stopping:
            archives.tick()
    await archives.stop()


async def _discover(options: ToFileOptions, run: Run, archives: _Archives) -> None:
    """Look for new topics at once, and every --topic-refresh."""
    while not run.is_stopping:
        await archives.add(await _topics(options, run, archives.log))
        await run.sleep(options.topic_refresh)


TOOL = Tool("nsq_to_file", "write the messages of topics to files", ToFileOptions, _mistake, _run, refuses_words=True)
main = TOOL.main
