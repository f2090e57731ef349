"""A server of Spark Connect as a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark_nsq.java import ensure_java

from tests.process import ReservedPort, wait_until
from tests.wire import HOST

START_SECONDS = 180.0
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """Serves until `close`. `url` is for ``SparkSession.builder.remote``."""

    def __init__(self, directory: Path) -> None:
        self._port = ReservedPort()
        self.url = f"sc://{HOST}:{self._port.number}"
        self._log = directory / "connect.log"
        home = Path(pyspark.__file__).parent
        settings = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port.number),
            "spark.driver.host": HOST,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        named = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
        ensure_java(environment)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [home / "bin/spark-submit", "--class", _CLASS, "--master", "local[2]", *named, "spark-internal"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        wait_until(self._listens, "the server of Spark Connect listens", START_SECONDS)

    def close(self) -> None:
        """End it with all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._port.release()

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            socket.create_connection((HOST, self._port.number)).close()
        except OSError:
            return False
        return True
