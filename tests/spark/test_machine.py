"""Where Spark runs its tasks, as seen by a process that Spark's Java has started."""

import subprocess
import sys

import pytest

_CHILD = "from pyspark_nsq.machine import tasks_run_here; print(tasks_run_here())"
#: It waits for its child, as Java does.
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}], check=True)"


@pytest.mark.parametrize(
    ("words", "here"),
    [
        (["--conf", "spark.master=local[2]", "pyspark-shell"], True),
        (["--master", "local[*]"], True),
        (["--conf", "spark.master=local"], True),
        (["--conf", "spark.master=local-cluster[2,1,1024]"], False),
        (["--master", "spark://local:7077"], False),
        (["--master", "yarn", "--conf", "spark.master=local"], False),
        (["pyspark-shell"], False),
    ],
)
def test_the_command_of_java_names_the_master(words: list[str], here: bool) -> None:
    done = subprocess.run([sys.executable, "-c", _PARENT, *words], capture_output=True, text=True, timeout=60)
    assert f"{here}\n" == done.stdout
