"""
Who may import whom.

    F4 house   plugins metadata takeover assembly service tap fsck ...
                                                         everything below
    F3 servers lookupd admin tools                       as an edge, and net
    F3 edges   net                                       F0-F2 and any library
    F3         auth.http                                 as an edge, for its library, and net
    F2 guests  protocols backends auth                   F0-F1; not each other
    F2         lookupd's registrations                   F0
    F1 core    core                                      F0; no IO, no clock
    F0 words   the other modules at the top
    side       testing client                            F0-F2; nobody imports testing

F0 to F2 use the standard library, attrs, mypy_extensions and zope.interface, and read no clock; snappy, RE2 and ISA-L
are libraries.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "nsqtw").rglob("*.py"))
SPARK = sorted((ROOT / "contrib/spark/pyspark_nsq").rglob("*.py"))

HOUSE = {
    "plugins",
    "metadata",
    "takeover",
    "assembly",
    "service",
    "process",
    "program",
    "tap",
    "tap_lookupd",
    "twistd_service",
    "config_changes",
    "fsck",
    "commands",
    "backend_migration",
}
ASKING = "auth.http"
"""The modules of auth that speak HTTP."""
SERVERS = {"lookupd", "admin", "tools"}
EDGES = {"net", ASKING} | SERVERS
REGISTRATIONS = "lookupd.registrations"
"""What nsqlookupd knows: modules of lookupd that are no edge."""
REGISTRATION_MODULES = {
    "changes",
    "directory",
    "documents",
    "entries",
    "members",
    "producer",
    "registrations",
    "snapshot",
    "watching",
}
GUESTS = {"protocols", "backends", "auth", REGISTRATIONS}
SIDE = {"testing", "client"}
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
LIBRARIES = {
    "nsqtw/backends/checksum.py": {"isal"},
    "nsqtw/protocols/compression.py": {"cramjam"},
    "nsqtw/auth/grants.py": {"re2"},
}
"""What a module below the edges needs, and loads when it is asked for."""
PLAIN = {"attr", "attrs", "mypy_extensions", "zope", "nsqtw", *sys.stdlib_module_names}


def part_of(module: Path) -> str:
    """`net` for nsqtw/net/tcp.py, `words` for a module at the top that is not of the house."""
    parts = module.relative_to(ROOT / "nsqtw").with_suffix("").parts
    if ".".join(parts) in {ASKING, f"{ASKING}_trust"}:
        return ASKING
    if parts[0] == "lookupd" and parts[-1] in REGISTRATION_MODULES:
        return REGISTRATIONS
    if len(parts) > 1 or parts[0] in HOUSE:
        return parts[0]
    return "words"


def part_named(name: str) -> str:
    """As part_of, for the dotted name of a module of ours."""
    parts = name.split(".")
    if name.startswith((f"nsqtw.{ASKING}.", f"nsqtw.{ASKING}_trust")):
        return ASKING
    if name.startswith("nsqtw.lookupd.") and name.split(".")[2] in REGISTRATION_MODULES:
        return REGISTRATIONS
    known = HOUSE | EDGES | GUESTS | SIDE | {"core"}
    return parts[1] if len(parts) > 1 and parts[1] in known else "words"


def imports_of(module: Path) -> Iterator[str]:
    """The dotted names that a module imports, wherever it does so, except for type checkers only."""
    for_types: set[ast.AST] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for_types.update(inner for statement in node.body for inner in ast.walk(statement))
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import hides the floor it goes to"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def may_import(part: str) -> set[str]:
    """The parts of nsqtw that this part may import."""
    below = {"words"}
    if part == "words":
        return below
    below.add("core")
    if part == "core":
        return below
    if part in GUESTS:
        return below | {part}
    below |= GUESTS
    if part in SERVERS | {ASKING}:
        return below | {part, "net"}
    if part in EDGES | SIDE:
        return below | {part}
    return below | EDGES | HOUSE


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_floor_may(module: Path) -> None:
    part = part_of(module)
    imported = set(imports_of(module))
    tops = {name.partition(".")[0] for name in imported}
    wrong = {name for name in imported if name.startswith("nsqtw.") and part_named(name) not in may_import(part)}
    if part in {"words", "core"} | GUESTS:
        wrong |= (tops - PLAIN - LIBRARIES.get(str(module.relative_to(ROOT)), set())) | (tops & CLOCKS)
    if part == "core":
        wrong |= tops & OUTSIDE
    assert not wrong


@pytest.mark.parametrize("module", SPARK, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_spark_package_stands_alone(module: Path) -> None:
    assert not {name for name in imports_of(module) if name.partition(".")[0] == "nsqtw"}


def test_words_core_and_guests_load_no_twisted() -> None:
    """Said by ast above, shown here: whatever they import imports none either."""
    names = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in MODULES
        if part_of(module) in {"words", "core"} | GUESTS
    ]
    loads = "\n".join(f"import {name}" for name in names)
    heavy = "twisted treq asyncio pyspark"
    script = f"{loads}\nimport sys\nprint([name for name in {heavy!r}.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
