"""The command `nsqtw-spark` itself: help, errors of one line, exit codes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark_nsq.errors import OptionError, ReadError
from pyspark_nsq.jobs import main as command
from pyspark_nsq.jobs import program as program_module
from pyspark_nsq.jobs.failures import explained, quiet_analysis

NSQD = "--nsqd-http-address=127.0.0.1:1"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A job that raises what the test puts here."""
    raised: list[BaseException] = []

    @click.command()
    def program() -> None:
        raise raised[0]

    monkeypatch.setattr(program_module, "program", program)
    return raised


def test_help_lists_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["--help"]) == command.DONE
    said = capsys.readouterr().out
    assert [name for name in command._COMMANDS if f"  {name} " not in said] == []


@pytest.mark.parametrize("name", command._COMMANDS)
def test_every_job_has_a_help_that_needs_no_spark(name: str) -> None:
    script = (
        "import sys; from pyspark_nsq.jobs.main import run; code = run(sys.argv[1:]); "
        "heavy = {'twisted', 'pyarrow', 'deltalake'} & set(sys.modules); sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script, name, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: nsqtw-spark {name} ")


@pytest.mark.parametrize("name", command._COMMANDS)
def test_the_table_names_commands(name: str) -> None:
    module = import_module(f"pyspark_nsq.jobs.{name.replace('-', '_')}")
    assert isinstance(getattr(module, name.replace("-", "_")), click.Command)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archve"], 'nsqtw-spark: unknown job "archve"; did you mean "archive"?'),
        (["xyz"], 'nsqtw-spark: unknown job "xyz"; known are: archive'),
        (["profile", "--nsqd-http-address=x", "--topic=t"], 'option "--nsqd-http-address": "x" is not host:port or'),
        (["archive", "--output=x", NSQD, "--topic=a b"], 'option "--topic": "a b" is no topic name; 1 to 64 of'),
        (["archive", "--output=x", NSQD, "--topic-pattern=a["], 'option "--topic-pattern": "a[" is no regular'),
        (["archive", "--output=x", NSQD, "--topic=t", "--min-age=5"], "--min-age needs --compact"),
        (["archive", "--output=x", NSQD, "--topic=t", "--file-size=5"], "--file-size needs --compact"),
        (["archive", NSQD, "--topc=t"], "No such option"),
        (["archive", "--output=x", NSQD, "--topic=t", "--once", "--trigger=5"], "--trigger is of no use with --once"),
        (
            ["archive-files", "--output=x", "--conf=driver.memory=1g"],
            'begin with "spark.", and those of Hadoop\'s with',
        ),
        (["archive-files", "--output=x", "--master=local", "--conf=spark.master=local"], "exclude each other; leave"),
        (["profile", "--archive=x", "--topic=t", "--allow-data-loss"], "--allow-data-loss is of no use with --archive"),
        (
            ["archive", "--output=x", NSQD, "--topic=t", "--tls-key-file=k"],
            '"--tls-key-file" needs "--tls-cert',
        ),
        (
            ["replay", "--archive=x", "--topic=t", "--to-topic=u", "--to-nsqd-http-address=xx"],
            'option "--to-nsqd-http-address": "xx" is not host:port',
        ),
        (["replay", NSQD, "--topic=t", "--to-channel=c", "--allow-same-topic"], "--allow-same-topic needs --to-topic"),
        (["archive", "--topic=t", "--output=o"], "give either --nsqd-http-address or --lookupd-http-address"),
        (["archive", NSQD, "--topic=t", "--output=o", "--conf=x"], '--conf "x" is not NAME=VALUE'),
    ],
)
def test_wrong_words_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(words) == command.WRONG_USAGE
    assert_one_line(capsys.readouterr().err, said)


def test_no_words_are_answered_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run([]) == command.WRONG_USAGE
    assert "Usage: nsqtw-spark" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError('option "topic" is wrong'), command.WRONG_USAGE),
        (ReadError("nobody\nanswers"), command.FAILED),
        (ZeroDivisionError("division by zero"), command.FAILED),
        (KeyboardInterrupt(), command.INTERRUPTED),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(error)
    assert command.run(["program"]) == code
    if code != command.INTERRUPTED:
        assert_one_line(capsys.readouterr().err, " ".join(str(error).split()))


def test_debug_shows_the_traceback(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(ZeroDivisionError("division by zero"))
    command.run(["--debug", "program"])
    assert "Traceback" in capsys.readouterr().err


def test_an_error_inside_of_an_error_of_spark_is_shown_alone() -> None:
    text = (
        "[STREAM_FAILED] Query failed\n  File x\npyspark_nsq.errors.ReadError: nobody answers\n\nJVM stacktrace:\n..."
    )
    assert explained(RuntimeError(text)) == "nobody answers"


def test_a_traceback_inside_of_an_error_of_spark_is_left_out() -> None:
    trace = "Traceback (most recent call last):\n  File x\n    y\nOSError: disk full"
    text = f"[FAILED] Reason:\n{trace}\n\nJVM stacktrace:\na.BError: c"
    assert explained(RuntimeError(text)) == "RuntimeError: OSError: disk full"


def test_the_state_of_a_query_is_left_out() -> None:
    text = "Python worker exited.\n=== Streaming Query ===\nIdentifier: [id = 1]\nThread State: RUNNABLE"
    assert explained(RuntimeError(text)) == "RuntimeError: Python worker exited."
    assert explained(RuntimeError("a.B: c\n\tat d.E\n\tat f.G")) == "RuntimeError: a.B: c"


def test_an_error_of_a_call_of_java_is_shown_without_the_call() -> None:
    text = "An error occurred while calling o23.start.\n: java.io.IOException: mkdir of file:/x failed\n\tat a.b"
    assert (
        explained(RuntimeError(text)) == "IOException: mkdir of file:/x failed; name a folder that Spark can write to"
    )


def test_the_cause_of_a_failed_task_is_shown() -> None:
    text = (
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: "
        "58030\n\tat a.b\nCaused by: org.apache.parquet.ParquetCloseException: Unable to close resource\n\tat c.d\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat e.f\n\t... 3 more"
        "\n"
        "Caused by: java.io.IOException: No space left on device\n\tat g.h\n"
    )
    shown = explained(RuntimeError(text))
    assert "[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. " in shown
    assert shown.endswith(
        "; cause: IOException: No space left on device; free space where the named folder is, and run the command again"
    )


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("empty answer")])
def test_a_java_that_has_ended_is_named(error: Exception) -> None:
    said = "Spark's Java process has ended: it was killed, or had too little memory; run the command again"
    assert said == explained(error)


def test_a_spark_that_does_not_start_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_conf: object) -> None:
        told = SimpleNamespace(getMessage=lambda: "Could not parse Master URL: 'spark'")
        error = Py4JJavaError.__new__(Py4JJavaError)
        error.java_exception = told
        raise error

    monkeypatch.setattr(SparkContext, "getOrCreate", fail)
    assert command.run(["archive-files", "--output=x", "--master=spark"]) == command.FAILED
    said = "nsqtw-spark: Spark does not start: Could not parse Master URL: 'spark'; check --master and --conf, and that"
    assert_one_line(capsys.readouterr().err, said)


def test_the_program_for_spark_submit(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["program"]) == command.DONE
    program = Path(capsys.readouterr().out.strip())
    done = subprocess.run([sys.executable, program, "archve"], capture_output=True, text=True)
    assert done.returncode == command.WRONG_USAGE
    assert_one_line(done.stderr, 'did you mean "archive"?')


def test_a_machine_without_spark(tmp_path: Path) -> None:
    for name in ("pyspark", "pyspark_nsq"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})")
    script = "import sys; sys.path.insert(0, sys.argv[1]); from nsqtw.cli.spark_jobs import main; main()"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert_one_line(done.stderr, "nsqtw-spark: PySpark is not installed; run: pip install 'nsqtw[spark]'")


def assert_one_line(text: str, part: str) -> None:
    assert text.count("\n") == 1
    assert part in text
    assert text.startswith("nsqtw-spark")


@pytest.mark.parametrize("word", ["--help", "program"])
def test_a_stdout_that_cannot_be_written_is_one_line(word: str) -> None:
    done = on_full_disk("-m", "pyspark_nsq.jobs", word)
    assert (done.returncode, done.stderr) == (1, "nsqtw-spark: stdout cannot be written: no space left on device\n")


def test_a_line_that_is_written_at_the_end_is_lost_with_one_line() -> None:
    """As those of a job that prints a table."""
    code = "from pyspark_nsq.jobs import main; main.run = lambda words: print('x') or 0; main.main()"
    done = on_full_disk("-c", code)
    assert (done.returncode, done.stderr) == (1, "nsqtw-spark: stdout cannot be written: no space left on device\n")


def on_full_disk(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a stdout that takes nothing."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            [sys.executable, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environ
        )


def test_foreign_text_in_an_error_is_escaped(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(ReadError("a\x1b[2Jb\u202ec"))
    assert command.run(["program"]) == command.FAILED
    assert capsys.readouterr().err == "nsqtw-spark: a\\x1b[2Jb\\u202ec\n"


def test_after_quiet_moments_pyspark_logs_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger that is made by name, and not by PySpark, does not take the keywords of its messages."""
    monkeypatch.delitem(logging.Logger.manager.loggerDict, "SQLQueryContextLogger", raising=False)
    with quiet_analysis():
        pass
    assert isinstance(logging.getLogger("SQLQueryContextLogger"), PySparkLogger)
