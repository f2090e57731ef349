"""A configuration of ``nsqtw-spark etl`` for tests, and its run in the session that all tests share."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark_nsq.jobs.etl.config import load
from pyspark_nsq.jobs.etl.pipeline import Pipeline, build

from tests.process import NsqdProcess
from tests.wire import HOST

Sections = dict[str, Any]


def base(address: str) -> Sections:
    """Return the sections of a pipeline that copies a topic; a test changes some of them."""
    return {
        "nsq": {"nsqd_http_addresses": address},
        "source": {"topic": "t", "schema": "id int NOT NULL, at timestamp"},
        "query": {"sql": "SELECT id FROM messages"},
        "sink": {"path": "out"},
        "run": {"checkpoint": "checkpoint", "trigger": "available_now"},
    }


def write(folder: Path, sections: Sections) -> Path:
    """Write a configuration. Strings are written as JSON, which TOML reads the same way."""
    lines = []
    for name, value in sections.items():
        for each in value if isinstance(value, list) else [value]:
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += [f"{key} = {_value(one)}" for key, one in each.items()]
    path = folder / "pipeline.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_value(one)}' for key, one in value.items()) + " }"
    return json.dumps(value)


def built(spark: SparkSession, folder: Path, sections: Sections) -> Pipeline:
    """Analyse a pipeline in a session with names of its own."""
    return build(spark.newSession(), load(write(folder, sections)))


def run(spark: SparkSession, folder: Path, sections: Sections) -> Pipeline:
    pipeline = built(spark, folder, sections)
    pipeline.run()
    return pipeline


def address(broker: NsqdProcess) -> str:
    return f"{HOST}:{broker.http_port}"


def topic(broker: NsqdProcess, *names: str) -> None:
    """Make topics that keep their messages."""
    for name in names:
        broker.create(name)
        broker.order(f"/v2/topic/retention?topic={name}&time=1h")


def publish(broker: NsqdProcess, name: str, *bodies: bytes) -> None:
    data = b"".join([len(bodies).to_bytes(4, "big"), *(len(one).to_bytes(4, "big") + one for one in bodies)])
    answer = broker.http("POST", f"/mpub?topic={name}&binary=true", data)
    assert answer.status == 200, answer


def published(spark: SparkSession, broker: NsqdProcess, name: str) -> list[dict[str, Any]]:
    """Return the messages of a topic, which are JSON, in their order."""
    options = {"replay": "log", "nsqdHttpAddresses": address(broker), "topic": name}
    rows = spark.read.format("nsq").options(**options).load().select("position", "value").collect()
    return [json.loads(bytes(row.value)) for row in sorted(rows)]
