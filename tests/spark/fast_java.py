"""Java as it starts fastest. In the seconds that most tests need one, its better compiler costs more than it saves."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark_nsq

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def use() -> None:
    """Have this process, and those that it starts, run Spark so."""
    log4j = Path(pyspark_nsq.__file__).with_name("log4j2.properties").as_uri()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", OPTIONS)
    # A local session sets the second one, unless there is something.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{OPTIONS} -Dlog4j2.configurationFile={log4j}")
