"""
Docstrings against the code. A name in backticks has to exist: in the docstring of a function as a parameter, in its
body, in its class or at the top of its module; in the docstring of a module anywhere in it. A text of the module is a
name, too, such as a field of JSON; and everywhere a module, a class, an option, and a file that nsqtw names.
"""

from __future__ import annotations

import ast
import builtins
import pkgutil
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "nsqtw").rglob("*.py"))

_NAME = re.compile(r"`([A-Za-z_]\w+(?:\.[A-Za-z_]\w*)*)(?:\(\))?`")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | Function


def unknown_names(source: str, siblings: Iterable[str] = ()) -> list[str]:
    """
    Return `line: name` for each name in backticks that the docstrings of a module have and its code has not.
    `siblings` are the modules of its package.
    """
    tree = ast.parse(source)
    texts = {str(one.value) for one in ast.walk(tree) if isinstance(one, ast.Constant)}
    texts.update(siblings)
    own = _used(tree) | _texts() | texts
    return list(_unknown(tree, own, _defined(tree) | texts))


def _unknown(scope: Scope, known: set[str], above: set[str]) -> Iterator[str]:
    """`known` are the names that docstrings directly in `scope` may have, `above` those that all below may have."""
    for statement in scope.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            for name in _NAME.findall(str(statement.value.value)):
                if not _exists(name, known):
                    yield f"{statement.lineno}: {name}"
        elif isinstance(statement, ast.ClassDef):
            inside = above | _members(statement)
            yield from _unknown(statement, inside | _used(statement), inside)
        elif isinstance(statement, Function):
            inside = above | _used(statement)
            yield from _unknown(statement, inside, inside)


def _exists(name: str, known: set[str]) -> bool:
    *owner, last = name.split(".")
    if name in known or name in _classes() or hasattr(builtins, name):
        return True
    if not owner:
        return name in _packages() or name in _options()
    if name in _modules() or name in _texts():
        return True
    if any(last in _used(tree) for tree in _modules().get(".".join(owner), ())):
        return True
    if classes := _classes().get(owner[-1]):
        return any(last in _members(one) for one in classes)
    return (owner[-1] in known and last in _everywhere()) or _is_foreign(name)


def _is_foreign(name: str) -> bool:
    try:
        return pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _used(node: ast.AST) -> set[str]:
    """Return all identifiers in a piece of code."""
    names: set[str] = set()
    for one in ast.walk(node):
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(one, field, None)
            if isinstance(name, str):
                names.update(name.split("."))
    return names


def _defined(tree: ast.Module) -> set[str]:
    """Return the names at the top of a module."""
    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (ast.ClassDef, Function)):
            names.add(statement.name)
        else:
            names |= _used(statement)
    return names


def _members(owner: ast.ClassDef, *seen: str) -> set[str]:
    """Return the attributes, methods and parameters of a class and of its bases."""
    names: set[str] = set()
    for one in ast.walk(owner):
        if isinstance(one, Function):
            names.add(one.name)
            if one.name == "__init__":
                names |= _used(one.args)
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in ("self", "cls"):
            names.add(one.attr)
    for statement in owner.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            names |= _used(statement)
    for base in {name for one in owner.bases for name in _used(one)} - {owner.name, *seen}:
        for one in _classes().get(base, ()):
            names |= _members(one, owner.name, *seen)
    return names


@cache
def _trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in FILES]


@cache
def _classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in _trees():
        for one in ast.walk(tree):
            if isinstance(one, ast.ClassDef):
                found.setdefault(one.name, []).append(one)
    return found


@cache
def _everywhere() -> set[str]:
    return set().union(*(_used(tree) for tree in _trees()))


@cache
def _modules() -> dict[str, list[ast.Module]]:
    """Return all modules and packages by name, also by short ones: `nsqtw.core.log` and `core.log`."""
    found: dict[str, list[ast.Module]] = {}
    for path, tree in zip(FILES, _trees(), strict=True):
        parts = path.relative_to(ROOT).with_suffix("").parts
        for end in range(1, len(parts) + 1):
            for start in range(end):
                found.setdefault(".".join(parts[start:end]), []).extend([tree] if end == len(parts) else [])
    return found


@cache
def _packages() -> set[str]:
    return {path.relative_to(ROOT / "nsqtw").parts[0].removesuffix(".py") for path in FILES} | {"nsqtw"}


@cache
def _texts() -> set[str]:
    return {str(one.value) for tree in _trees() for one in ast.walk(tree) if isinstance(one, ast.Constant)}


@cache
def _options() -> set[str]:
    """Return the names of all options and settings."""
    trees = [tree for path, tree in zip(FILES, _trees(), strict=True) if path.parent.name == "options"]
    return {
        statement.target.id
        for tree in trees
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and owner.name.endswith(("Options", "Policy", "Rule"))
        for statement in owner.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def _siblings(path: Path) -> set[str]:
    """Return the names of the modules of a package, and of the package above it."""
    return {one.stem for above in path.parents[:2] for one in above.iterdir()}


@pytest.mark.plain
def test_names_in_backticks_exist() -> None:
    found = {path: unknown_names(path.read_text(), _siblings(path)) for path in FILES}
    lines = [f"{path.relative_to(ROOT)}:{name}" for path, names in found.items() for name in names]
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def take(count: int) -> None:\n    """Take `count` bytes of `body`."""', ["2: body"]),
        ('def take() -> None:\n    """See `nsqtw.core.log`, `core.log` and `core.no_log`."""', ["2: core.no_log"]),
        ('class Row:\n    """Has `first`, no `second`."""\n    first = 1', ["2: second"]),
        ('class Row:\n    first = 1\n    def take(self) -> None:\n        """Set `first` to `last`."""', ["4: last"]),
        ('class Row:\n    first = 1\n    """As long as `second`."""', ["3: second"]),
        ('"""The module has `take`, `this` and `that`."""\ndef take(this: int) -> None: ...', ["1: that"]),
        ('def take() -> None:\n    """Raise OSError, or `True`, `--flag`, `two words`, `OSError`."""', []),
        ('def take() -> dict[str, int]:\n    """Return `key`."""\n    return {"key": 1}', []),
    ],
)
def test_unknown_names_are_found(source: str, found: list[str]) -> None:
    assert unknown_names(source) == found
