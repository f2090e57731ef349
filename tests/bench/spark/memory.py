"""Memory of Spark while it works: of its processes, and what the heap of its Java still holds after a collection."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ..server import Broker
from . import cpus

_LOOK_SECONDS = 0.2
#: A collection of a heap of 1 GB takes some 0.1 s.
_COLLECT_SECONDS = 4.0
_MB = 1e6


class Peaks:
    """The largest memory in MB: of the processes, of the heap after a collection, and of Arrow's buffers in Java."""

    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.java = self.python = self.live = self.arrow = 0.0
        self._jvm = spark._jvm
        self._broker = broker

    def look(self) -> None:
        """Take the memory of the processes at this moment into account."""
        java = python = 0.0
        for pid in cpus.processes(os.getpid(), without=self._broker.pid):
            if pid != os.getpid():
                name, megabytes = cpus.memory(pid)
                java, python = (java + megabytes, python) if name == "java" else (java, python + megabytes)
        self.java, self.python = max(self.java, java), max(self.python, python)

    def collect(self) -> None:
        """Let Java collect its garbage, and take into account what is left."""
        jvm = self._jvm
        assert jvm is not None
        jvm.java.lang.System.gc()
        heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
        arrow = jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
        self.live = max(self.live, heap.getUsed() / _MB)
        self.arrow = max(self.arrow, arrow.getAllocatedMemory() / _MB)


@contextmanager
def watched(spark: SparkSession, broker: Broker) -> Iterator[Peaks]:
    """Watch the memory until the end of the block."""
    peaks, over = Peaks(spark, broker), threading.Event()

    def watch() -> None:
        collected = time.monotonic()
        while not over.wait(_LOOK_SECONDS):
            peaks.look()
            if time.monotonic() - collected > _COLLECT_SECONDS:
                peaks.collect()
                collected = time.monotonic()
        peaks.look()
        peaks.collect()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()
