"""
``python -m tests.spark.secret_job FOLDER TCP_PORT HTTP_PORT``: writes and reads with secrets, and looks for them in all
that Spark shows or stores: plans, progress, errors, the event log, the web pages, the REST API, and what it prints.

Prints how many places it looked at, those in which it has found a secret, and those in which it has found `CONTROL`,
which is in the application's name: so it does find things.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import trustme
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark_nsq.session import local_session

SECRET, FROM_FILE, FROM_ENV = "xyzzy-plugh-1", "xyzzy-plugh-2", "xyzzy-plugh-3"
CONTROL = "frobozz-magic"
_PAGES = ("/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/")
_API = ("/sql?details=true&planDescription=true", "/environment", "/jobs", "/stages?details=true", "/allexecutors")


class Places:
    """Everything that was looked at, by name."""

    def __init__(self, needles: list[str]) -> None:
        self.count = 0
        self.found: list[str] = []
        self.control: list[str] = []
        self._needles = needles

    def look(self, name: str, text: str) -> None:
        self.count += 1
        self.found += [f"{name}:{number}" for number, needle in enumerate(self._needles) if needle in text]
        if CONTROL in text:
            self.control.append(name)


def explained(frame: DataFrame) -> str:
    with redirect_stdout(StringIO()) as printed:
        frame.explain(extended=True)
        frame.explain(mode="formatted")
        print(frame)
    return printed.getvalue()


def failure(places: Places, name: str, frame: DataFrame, options: dict[str, str]) -> None:
    try:
        frame.write.format("nsq").mode("append").options(**options).save()
    except Exception as error:
        places.look(name, f"{error} {error!r}")
    else:
        raise AssertionError(f"{name} should fail")


def finish(places: Places, name: str, query: StreamingQuery) -> None:
    query.awaitTermination()
    with redirect_stdout(StringIO()) as printed:
        query.explain(True)
    places.look(f"{name}-plan", printed.getvalue())
    places.look(f"{name}-progress", json.dumps([json.loads(one.json) for one in query.recentProgress]))
    places.look(f"{name}-status", str(query.status))


def work(spark: SparkSession, places: Places, folder: Path, tcp: str, http: str) -> None:
    key = folder / "key.pem"
    nsqd = {"nsqdHttpAddresses": f"127.0.0.1:{http}", "topic": "t"}
    channel = {"nsqdTcpAddresses": f"127.0.0.1:{tcp}", "topic": "t", "channel": "c"}
    ways = {
        "option": {"authSecret": SECRET},
        "file": {"authSecretFile": "nsq.secret"},
        "env": {"authSecretEnv": "NSQ_SECRET"},
    }
    rows = spark.range(10).selectExpr("cast(id AS string) AS value")
    for way, secret in ways.items():
        rows.write.format("nsq").mode("append").options(**nsqd, **secret).save()
        log = spark.read.format("nsq").options(replay="log", **nsqd, **secret).load()
        assert log.count() > 0
        places.look(f"{way}-log-plan", explained(log))
        sampled = spark.read.format("nsq").options(**channel | secret, idleTimeoutMs="100", ackMode="peek").load()
        places.look(f"{way}-channel-plan", explained(sampled))
        failure(places, f"{way}-unknown", rows, nsqd | secret | {"bachSize": "1"})
    failure(places, "refused", rows, nsqd | ways["option"] | {"nsqdHttpAddresses": "127.0.0.1:1", "retries": "0"})
    spool = {"spoolPath": str(folder / "spool"), "idleTimeoutMs": "100"}
    for name, source, secret in (
        ("log", nsqd | {"replay": "log", "startingOffsets": "earliest"}, ways["option"]),
        # Spark does not tell the process of a stream's source where its files are.
        ("channel", channel | spool, {"authSecretFile": str(folder / "nsq.secret")}),
    ):
        stream = spark.readStream.format("nsq").options(**source | secret).load()
        places.look(f"{name}-stream-plan", explained(stream))
        writer = stream.select("value").writeStream.format("nsq").options(**nsqd | {"topic": "u"} | secret)
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{name}")).trigger(availableNow=True)
        finish(places, f"{name}-stream", writer.start())
    tls = {"tls.certFile": str(key), "nsqdHttpAddresses": f"https://127.0.0.1:{http}", "topic": "t", "retries": "0"}
    failure(places, "tls", rows, tls | {"tls.verify": "false"})
    failure(places, "tls-wrong-file", rows, tls | {"tls.caFile": "nsq.secret"})
    failure(places, "bad-secret", rows, nsqd | {"authSecret": f"{SECRET} {SECRET}"})
    failure(places, "two-secrets", rows, nsqd | {"authSecret": SECRET, "authSecretEnv": "NSQ_SECRET"})
    given = ", ".join(f"{name} '{text}'" for name, text in (nsqd | {"replay": "log", "authSecret": SECRET}).items())
    create = f"TEMPORARY VIEW v USING nsq OPTIONS ({given})"
    places.look("view-plan", str(spark.sql(f"EXPLAIN EXTENDED CREATE {create}").collect()))
    spark.sql(f"CREATE {create}")
    for query in ("SELECT count(*) FROM v", "DESCRIBE EXTENDED v", "EXPLAIN EXTENDED SELECT * FROM v"):
        places.look(query.replace(" ", "-"), str(spark.sql(query).collect()))


def pages(spark: SparkSession, places: Places) -> None:
    context = spark.sparkContext
    api = f"/api/v1/applications/{context.applicationId}"
    executions = len(json.loads(_get(f"{context.uiWebUrl}{api}/sql?length=1000")))
    for path in [*_PAGES, *(api + end for end in _API), *(f"/SQL/execution/?id={one}" for one in range(executions))]:
        places.look(path, _get(f"{context.uiWebUrl}{path}"))


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def main(folder: Path, tcp: str, http: str) -> None:
    (folder / "nsq.secret").write_text(FROM_FILE)
    os.environ["NSQ_SECRET"] = FROM_ENV
    trustme.CA().issue_cert("spark@example.org").private_key_and_cert_chain_pem.write_to_path(folder / "key.pem")
    middle_of_key = (folder / "key.pem").read_text().splitlines()[1]
    logs = folder / "logs"
    logs.mkdir()
    printed = folder / "printed"
    said = os.dup(2)
    # Of the driver, its Java, and all tasks.
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 2)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.files": (folder / "nsq.secret").as_uri(),
        "spark.executorEnv.NSQ_SECRET": FROM_ENV,
        "spark.sql.ui.retainedExecutions": "1000",
    }
    spark = local_session(CONTROL, settings=settings)
    places = Places([SECRET, FROM_FILE, FROM_ENV, middle_of_key])
    try:
        work(spark, places, folder, tcp, http)
        pages(spark, places)
    finally:
        os.dup2(said, 2)
        spark.stop()
    for file in logs.rglob("*"):
        if file.is_file():
            places.look("event-log", file.read_text("utf-8", "replace"))
    for checkpoint in folder.glob("checkpoint-*"):
        for file in checkpoint.rglob("*"):
            if file.is_file():
                places.look(file.name, file.read_bytes().decode("utf-8", "replace"))
    places.look("printed", printed.read_text("utf-8", "replace"))
    print("places", places.count)
    print("found", " ".join(places.found) or "-")
    print("control", " ".join(sorted(set(places.control))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
