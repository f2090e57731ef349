"""Progress in lines of JSON, for the logger ``pyspark_nsq``, and with `showProgress` for the error output.

    {"event": "published", "batch": 7, "rows": 50000, "requests": 10, "bytes": 10600208, "waitedMs": 312, "retried": 1,
     "retried429": 0, "retried5xx": 1, "retriedTimeout": 0, "retriedRefused": 0, "retriedLost": 0, "tasks": 2}
                                            `waitedMs`: time that the tasks waited for nsqd's answers; `retried`:
                                            number of repeated requests, followed by the numbers by cause
    {"event": "failed", ...}                the same of a job that failed; its published rows stay published
    {"event": "taken", "topic": "t", "channel": "c", "after": 0, "end": 400, "rows": 400, "bytes": 1090,
     "repeated": 0, "waiting": 600, "tasks": 2}
                                            a micro-batch of a channel, by row numbers in the spool; `repeated`:
                                            repeats dropped so far; `waiting`: rows after this micro-batch
    {"event": "sampled", "topic": "t", "channel": "c", "rows": 400, "bytes": 1090, "tasks": 2}
                                            a batch of a channel
    {"event": "replayed", "topic": "t", "nsqd": "http://127.0.0.1:4151", "start": 4503599627370496,
     "end": 4503599627370896, "rows": 400, "requests": 1, "retried": 0, "bytes": 17490}
                                            a task of a log, by positions

`batch` is null outside of streams. A task of a log prints its line on its own machine; all others are printed on the
driver's machine. `bytes` are those of requests' bodies for a sink, of values for a channel, of answers for a log.
"""

from __future__ import annotations

import json
import logging
import sys

_log = logging.getLogger("pyspark_nsq")


def tell(event: str, show: bool, level: int = logging.INFO, **figures: str | int | None) -> None:
    """Log a line; with `show` also print it to the error output of this process."""
    line = json.dumps({"event": event} | figures)
    _log.log(level, "%s", line)
    if show:
        print(line, file=sys.stderr, flush=True)
