"""Private names of Twisted in the code are those that ADR 0019 lists, and the supported versions have them."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DECISION = ROOT / "docs" / "decisions" / "0019-private-names-of-twisted.md"
_ROW = re.compile(r"^\| `(twisted\.[\w.]+)` \| `nsqtw/([\w/]+\.py)` \|", re.MULTILINE)
_STANDARD_LIBRARY = {"_replace", "_make", "_fields", "_asdict", "_exit", "_current_frames", "_value_"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def modules() -> dict[str, ast.Module]:
    """The parsed modules of the package, by their path within it."""
    package = ROOT / "nsqtw"
    return {str(path.relative_to(package)): ast.parse(path.read_text()) for path in package.rglob("*.py")}


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines, as functions, classes or attributes."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case (
                ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store())
                | ast.Name(id=name, ctx=ast.Store())
            ):
                names.add(name)
            case ast.Constant(value=str(name)):  # __slots__
                names.add(name)
    return names


def imported(tree: ast.Module) -> set[str]:
    """Return the modules of the package that a module imports from, as paths."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("nsqtw."):
            found.add(node.module.removeprefix("nsqtw.").replace(".", "/") + ".py")
    return found


def reached(path: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the modules of the package that a module imports from, also by others: base classes are inherited so."""
    found = set[str]()
    waiting = [path]
    while waiting:
        new = imports.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def used_names() -> set[tuple[str, str]]:
    """Return the private names of Twisted, each with the module of the package that uses it."""
    trees = modules()
    own = {path: own_names(tree) for path, tree in trees.items()}
    imports = {path: imported(tree) for path, tree in trees.items()}
    found = set[tuple[str, str]]()
    for path, tree in trees.items():
        known = own[path].union(_STANDARD_LIBRARY, *(own.get(other, set()) for other in reached(path, imports)))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("twisted."):
                for alias in node.names:
                    if any(is_private(part) for part in f"{node.module}.{alias.name}".split(".")):
                        found.add((alias.name, path))
            elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in known:
                found.add((node.attr, path))
    return found


def listed() -> list[tuple[str, str]]:
    return _ROW.findall(DECISION.read_text())


def test_every_private_name_of_twisted_is_listed_with_its_reason() -> None:
    assert {(name.rpartition(".")[2], path) for name, path in listed()} == used_names()


def test_the_installed_version_has_every_listed_name() -> None:
    for name, _ in listed():
        parts = name.split(".")
        split = next(index for index, part in enumerate(parts) if part[:1].isupper() or index == len(parts) - 1)
        module = importlib.import_module(".".join(parts[:split]))
        source = Path(str(module.__file__)).read_text()
        assert re.search(rf"\b{re.escape(parts[-1])}\b", source), name
