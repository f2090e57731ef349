"""Packaging of nsqtw. Settings of the tools are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "nsqtw/__init__.py").read_text("utf-8"), re.MULTILINE)
assert VERSION is not None, "nsqtw/__init__.py says no __version__"

SPARK = ["pyspark>=4.2", "pyarrow>=18", "treq>=24.9"]
TEST = [
    "coverage>=7.6",
    "hypothesis>=6.120",
    # Draws the figures of the bench.
    "matplotlib>=3.9",
    "mypy>=2.4,<3",
    "mypy-zope>=1.0.17,<2",
    "pytest>=9,<10",
    "pytest-timeout>=2.3",
    "ruff>=0.17.5,<0.18",
    # Requests made from our OpenAPI document.
    "schemathesis>=4.32,<5",
    "setuptools>=77",
    "treq>=24.9",
    "trustme>=1.2",
    # Clients written by others: what they publish and consume is a test. python-snappy is for pynsq, gnsq, asyncnsq.
    "ansq>=0.3",
    "asyncnsq>=1.2.1,<2",
    "gnsq>=1.0.2",
    "pynsq>=0.9.1",
    "python-snappy>=0.7.3",
]

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
    package_data={"nsqtw": ["py.typed"]},
    data_files=[("share/man/man1", ["docs/nsqd.1"])],
    # cramjam: snappy. ddsketch: latency percentiles (docs/decisions/0005). google-re2: patterns of grants, treq: auth
    # servers (docs/auth.md).
    install_requires=[
        "attrs>=23.2",
        "cramjam>=2.8",
        "ddsketch>=3",
        "google-re2>=1.1",
        "pyopenssl>=24.3",
        "treq>=24.9",
        "twisted[tls]>=24.7",
        "zope.interface>=6",
    ],
    extras_require={"spark": SPARK, "test": TEST},
    entry_points={"console_scripts": ["nsqd=nsqtw.tap:main_nsqd", "nsqtw=nsqtw.commands:main"]},
)
