"""`nsq_tail`: prints the messages of topics."""

from __future__ import annotations

import random

import attrs

from nsqtw.client.message import Message
from nsqtw.client.twisted import Consumer
from nsqtw.options.fields import option
from nsqtw.options.types import BOOLEAN, INTEGER, TEXT, TEXTS
from nsqtw.printing import discard_stdout, write_message
from nsqtw.tools.program import Run, Tool
from nsqtw.tools.sources import SourceOptions, consume, make_consumer, source_mistake


@attrs.define(kw_only=True)
class TailOptions(SourceOptions):
    """The options of nsq_tail."""

    topic: tuple[str, ...] = option(TEXTS, (), "NSQ topic (may be given multiple times)")
    channel: str = option(TEXT, "", "NSQ channel; unless given, an ephemeral one with a random name")
    n: int = option(INTEGER, 0, "total messages to show of each topic (will wait if starved)")
    max_in_flight: int = option(INTEGER, 200, "max number of messages to allow in flight")
    print_topic: bool = option(BOOLEAN, False, "print topic name where message was received")


def _mistake(options: TailOptions) -> str:
    return source_mistake(options) or ("" if options.topic else "--topic required")


async def _run(options: TailOptions, run: Run) -> None:
    channel = options.channel or f"tail{random.randrange(999_999):06d}#ephemeral"
    max_in_flight = min(options.max_in_flight, options.n) if options.n > 0 else options.max_in_flight
    consumers: list[Consumer] = []
    for topic in options.topic:
        run.say(f"Adding consumer for topic: {topic}")
        printer = _Printer(run, topic, options)
        consumers.append(make_consumer(run, options, topic, channel, printer.handle, max_in_flight=max_in_flight))
    await consume(run, consumers)


class _Printer:
    """Prints the messages of one topic. The first topic with `n` messages ends the tool, after their FINs."""

    def __init__(self, run: Run, topic: str, options: TailOptions) -> None:
        self._run = run
        self._prefix = f"{topic} | ".encode() if options.print_topic else b""
        self._left = options.n if options.n > 0 else -1

    def handle(self, message: Message) -> None:
        """Print a message. The tool ends when stdout cannot be written."""
        if not self._left or self._run.is_stopping:
            message.requeue(0, backoff=False)
            return
        try:
            write_message(self._prefix + message.body)
        except OSError as error:
            message.requeue(0, backoff=False)
            discard_stdout()
            self._run.fail(f"ERROR: failed to write to os.Stdout - {(error.strerror or str(error)).lower()}")
            return
        self._left -= 1
        if not self._left:
            message.finish()
            self._run.stop()


TOOL = Tool("nsq_tail", "print the messages of topics", TailOptions, _mistake, _run)
main = TOOL.main
