"""Debian's Prometheus as a process, and promtool."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.process import ReservedPort, wait_until
from tests.wire import ANSWER_SECONDS, HOST, closed_on_failure

START_SECONDS = 60.0


class PrometheusProcess:
    """A Prometheus that scrapes `targets`, addresses by job, every second. `close` in the end."""

    def __init__(self, directory: Path, rules: Path, targets: dict[str, list[str]]) -> None:
        self._port = ReservedPort()
        self._log = directory / "prometheus.log"
        config = directory / "prometheus.yml"
        jobs = [{"job_name": job, "static_configs": [{"targets": listed}]} for job, listed in targets.items()]
        # JSON is YAML.
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)],
                    "scrape_configs": jobs,
                }
            )
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={directory / 'tsdb'}",
                    f"--web.listen-address={HOST}:{self._port.number}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with closed_on_failure(self):
            wait_until(self._is_ready, "Prometheus is ready", START_SECONDS)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._port.release()

    def api(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its HTTP API, which must be a success."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://{HOST}:{self._port.number}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression now, by the labels of each as JSON."""
        found = self.api("query", query=expression)["result"]
        return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in found}

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port.number}/-/ready", timeout=ANSWER_SECONDS):
                return True
        except OSError:
            return False


def promtool(*words: str, text: bytes = b"") -> str:
    """Run promtool, which must find nothing wrong; what it said."""
    done = subprocess.run(
        ["promtool", *words], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    return said
