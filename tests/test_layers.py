"""
The layers of nsqtw: which package may import which. A package imports from the packages listed for it here, and from
the modules at the top that all packages share.

    cli                               the command nsqtw
    tools                             fsck, backup, NSQ's tools
    nsqd  lookupd  admin              the daemons
    api  discovery  nsqd_import       the broker's HTTP API, the client of nsqlookupd, the import from nsqd
    cluster                           queries and changes of all nodes
    http  stats  daemon
    net                               TCP, TLS, limits
    runtime                           reactor, threads, turns
    client                            consumers and producers, for users
    protocols  backends  auth         plugins: they do not import each other
    replication                       the copy in a replica store
    core                              no IO, no clock
    options
    gocompat

Packages up to `auth` use the standard library, attrs, mypy_extensions and zope.interface, and read no clock; snappy,
RE2 and ISA-L are libraries. `testing` is for authors of plugins, and no other package imports it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "nsqtw").rglob("*.py"))
SPARK = sorted((ROOT / "contrib/spark/pyspark_nsq").rglob("*.py"))

SHARED = {
    *(
        "__init__",
        "errors",
        "foreign_text",
        "interfaces",
        "message_headers",
        "names",
        "printing",
        "rights",
        "upgrades",
        "version",
    ),
}
"""Modules at the top that every package may import."""
LAYERS: dict[str, set[str]] = {
    "gocompat": set(),
    "options": {"gocompat"},
    "core": {"options"},
    "backends": {"core", "options"},
    "protocols": {"core", "gocompat", "options"},
    "auth": {"options"},
    "lookupd.registrations": {"gocompat", "options"},
    "replication": {"backends", "core", "options", "replication.status"},
    "replication.status": set(),
    "runtime": {"core"},
    "client": {"gocompat", "options", "protocols"},
    "net": {"core", "options", "protocols", "runtime"},
    "daemon": {"options", "runtime"},
    "stats": {"backends", "core", "daemon", "options", "replication.status", "runtime"},
    "http": {"daemon", "gocompat", "net", "options", "protocols", "runtime"},
    "auth.http": {"auth", "http", "net", "options", "runtime"},
    "api": {
        *("backends", "core", "daemon", "gocompat", "http", "net", "options", "protocols", "replication.status"),
        *("runtime", "stats"),
    },
    "discovery": {"core", "gocompat", "http", "net", "options", "runtime"},
    "nsqd_import": {"backends", "core"},
    "cluster": {"client", "gocompat", "http", "net", "options", "replication.status", "runtime"},
    "lookupd": {
        *("backends", "daemon", "gocompat", "http", "lookupd.registrations", "net", "options", "runtime", "stats"),
    },
    "nsqd": {
        *("api", "auth", "auth.http", "backends", "core", "daemon", "discovery", "http", "net", "nsqd_import"),
        *("options", "plugins", "replication", "replication.status", "runtime", "stats"),
    },
    "admin": {
        *("auth", "auth.http", "cluster", "daemon", "gocompat", "http", "net", "options", "plugins"),
        *("replication.status", "runtime", "stats"),
    },
    "tools": {
        *("admin", "auth", "backends", "client", "cluster", "core", "daemon", "gocompat", "http", "lookupd", "nsqd"),
        "nsqd_import",
        *("options", "plugins", "replication", "runtime", "stats"),
    },
    "cli": {"client", "cluster", "net", "options", "replication", "replication.status", "runtime", "tools"},
    "testing": {"auth", "backends", "core", "options", "protocols", "replication"},
    "plugins": set(),
    "tap": {"daemon", "nsqd", "options", "plugins"},
    "tap_lookupd": {"daemon", "lookupd", "options"},
    "tap_admin": {"admin", "daemon", "options", "plugins"},
}
"""The packages that a package, or a module at the top, imports besides SHARED and itself."""
PARTS = {
    "auth.http": ("auth.http", "auth.authorization"),
    "lookupd.registrations": tuple(
        f"lookupd.{name}"
        for name in (
            *("changes", "queries", "json_documents", "members", "model", "registrations", "snapshot"),
            "subscription",
        )
    ),
    "replication.status": ("replication.status",),
}
"""Modules in another layer than their package."""
PURE = {"gocompat", "options", "core", "backends", "protocols", "auth", "lookupd.registrations"}
"""Packages without Twisted and without a clock."""
CLOCKS = {"time", "datetime", "sched"}
OUTSIDE = {
    "asyncio",
    "io",
    "logging",
    "os",
    "pathlib",
    "select",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
}
CLOCK_USERS = {"nsqtw/gocompat/time.py": {"datetime"}}
LIBRARIES = {
    "nsqtw/backends/checksum.py": {"isal"},
    "nsqtw/protocols/compression.py": {"cramjam"},
    "nsqtw/auth/grants.py": {"re2"},
}
"""Libraries that a pure module loads on demand."""
PLAIN = {"attr", "attrs", "mypy_extensions", "zope", "nsqtw", *sys.stdlib_module_names}


def name_of(module: Path) -> str:
    """`net.tcp` for nsqtw/net/tcp.py, `net` for its __init__.py."""
    parts = module.relative_to(ROOT / "nsqtw").with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


NAMES = {name_of(module): module for module in MODULES}
CONCRETE = ("backends.disk", "backends.dummy", "backends.sqlite")
"""The packages of the backends; the other modules of `backends` are for all of them."""


def part_of(name: str) -> str:
    """The key of LAYERS for a module, or SHARED."""
    for part, names in PARTS.items():
        if name in names:
            return part
    first = name.partition(".")[0]
    return "SHARED" if first in SHARED else first


@cache
def nodes_of(module: Path) -> tuple[ast.AST, ...]:
    """Return the ifs and imports of a module, in the order of `ast.walk`."""
    kinds = (ast.If, ast.Import, ast.ImportFrom)
    return tuple(node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, kinds))


@cache
def imports_of(module: Path, *, with_types: bool = False) -> tuple[str, ...]:
    """Return the dotted names that a module imports anywhere; `with_types`, also those for types only."""
    return tuple(_imports_of(module, with_types=with_types))


def _imports_of(module: Path, *, with_types: bool) -> Iterator[str]:
    for_types: set[ast.AST] = set()
    for node in nodes_of(module):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for_types.update(inner for statement in node.body for inner in ast.walk(statement))
        if node in for_types and not with_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import hides the package it names"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports_of(module: Path, *, with_types: bool = False) -> Iterator[str]:
    """The modules of nsqtw that a module imports, as `net.tcp`."""
    for imported in imports_of(module, with_types=with_types):
        name = imported.removeprefix("nsqtw").removeprefix(".")
        if imported == name:
            continue
        while name and name not in NAMES:
            name = name.rpartition(".")[0]
        yield name or "__init__"


def wrong_imports_of(module: Path) -> set[str]:
    """Return the names that a module imports although its layer may not."""
    part = part_of(name_of(module))
    allowed = {"SHARED", part} | LAYERS.get(part, set())
    wrong = {name for name in own_imports_of(module) if part_of(name) not in allowed}
    tops = {name.partition(".")[0] for name in imports_of(module)}
    path = str(module.relative_to(ROOT))
    if part in PURE or part == "SHARED":
        wrong |= (tops - PLAIN - LIBRARIES.get(path, set())) | (tops & CLOCKS) - CLOCK_USERS.get(path, set())
    if part == "core":
        wrong |= tops & OUTSIDE
    return wrong


def test_modules_import_only_what_their_layer_may() -> None:
    wrong = {name: wrong_imports_of(module) for name, module in NAMES.items()}
    assert {name: imported for name, imported in wrong.items() if imported} == {}


def test_tools_know_no_backend() -> None:
    """They find the backends as a broker does: those of somebody else are no less checked and copied."""
    tools = {name: module for name, module in NAMES.items() if name.startswith("tools.")}
    imported = {(name, one) for name, module in tools.items() for one in own_imports_of(module)}
    assert {(name, one) for name, one in imported if one.startswith(CONCRETE)} == set()


def test_no_modules_import_each_other_in_a_circle_not_even_for_types() -> None:
    imported = {name: set(own_imports_of(module, with_types=True)) - {name} for name, module in NAMES.items()}
    circle = [name for name in imported if name in reached_from(name, imported)]
    assert circle == []


def test_core_has_no_imports_for_types_only() -> None:
    """They hide circles from the test above."""
    core = [module for name, module in NAMES.items() if part_of(name) == "core"]
    assert [name_of(module) for module in core if "TYPE_CHECKING" in module.read_text("utf-8")] == []


def test_no_packages_import_each_other_in_a_circle() -> None:
    circle = [part for part in LAYERS if part in reached_from(part, LAYERS)]
    assert circle == []


def reached_from(start: str, edges: dict[str, set[str]]) -> set[str]:
    """All that can be reached from `start` by one or more edges."""
    reached: set[str] = set()
    waiting = list(edges.get(start, ()))
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += edges.get(name, ())
    return reached


def test_one_module_opens_databases() -> None:
    """Its connections raise no other errors than those of SQLite, however damaged the file is."""
    opening = [name for name, module in NAMES.items() if "sqlite3.connect(" in module.read_text("utf-8")]
    assert opening == ["backends.connection"]


def test_one_package_imports_psycopg() -> None:
    """Its errors are converted there, and a broker without a copy in PostgreSQL does not load it."""
    importing = {
        name for name, module in NAMES.items() if "psycopg" in {one.partition(".")[0] for one in imports_of(module)}
    }
    assert {name.rpartition(".")[0] for name in importing} == {"replication.postgres"}


def test_every_package_has_a_layer() -> None:
    parts = {part_of(name) for name in NAMES} - {"SHARED", ""}
    assert parts == set(LAYERS)


def test_the_spark_package_stands_alone() -> None:
    own = {str(module): [name for name in imports_of(module) if name.partition(".")[0] == "nsqtw"] for module in SPARK}
    assert {name: imported for name, imported in own.items() if imported} == {}


def test_pure_packages_load_no_twisted() -> None:
    """The syntax tree says so above; here they are imported."""
    names = [f"nsqtw.{name}" for name in NAMES if part_of(name) in PURE and name]
    loads = "\n".join(f"import {name}" for name in names)
    heavy = "twisted treq asyncio pyspark"
    script = f"{loads}\nimport sys\nprint([name for name in {heavy!r}.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
