"""The fields of JSON messages: their types, and the share of the objects that have them.

A message is reduced to its shape, the names and types without the values. Messages of one shape are counted as one, so
that a field costs little in each message.

Performance: `Shapes.add` runs for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

#: A type of a scalar; names and shapes of the fields of an object; or the shapes of the elements of an array.
Shape = type | tuple[tuple[str, ...], tuple[Any, ...]] | frozenset[Any]
Example = tuple[str, int]
"""The nsqd and the position of a message."""

ROOT = ""
OBJECT, ARRAY = "object", "array"
_NAMES = {int: "integer", float: "double", str: "string", bool: "boolean", type(None): "null"}
_CONTAINERS = (dict, list)
#: Depth below which only "object" and "array" are recorded.
_MAX_DEPTH = 12
_MAX_SHAPES = 2_000
MAX_FIELDS = 1_000


@dataclass(frozen=True)
class Type:
    """The number of values of a field with a type, and the first message with one."""

    count: int
    example: Example


def shape_of(value: Any, depth: int = _MAX_DEPTH) -> Shape:
    """Return the shape of a JSON value."""
    if type(value) is dict:
        if not depth:
            return ((), ())
        shapes = [shape_of(each, depth - 1) if type(each) in _CONTAINERS else type(each) for each in value.values()]
        return tuple(value), tuple(shapes)
    if type(value) is list:
        return frozenset([shape_of(each, depth - 1) for each in value]) if depth else frozenset()
    return type(value)


@dataclass
class Fields:
    """The types of each field, by its path: ``user.id``, ``tags[]`` for the elements of an array."""

    types: dict[str, dict[str, Type]] = field(default_factory=dict)
    #: Whether there were more than MAX_FIELDS, as with objects whose names are data.
    is_cut: bool = False

    def add(self, path: str, shape: Shape, count: int, example: Example) -> None:
        """Count a shape and its parts."""
        if isinstance(shape, tuple):
            self._count(path, OBJECT, count, example)
            prefix = f"{path}." if path else ""
            for name, inner in zip(*shape, strict=True):
                self.add(f"{prefix}{name}", inner, count, example)
        elif isinstance(shape, frozenset):
            self._count(path, ARRAY, count, example)
            for inner in shape:
                self.add(f"{path}[]", inner, count, example)
        else:
            self._count(path, _NAMES[shape], count, example)

    def merge(self, other: Fields) -> None:
        for path, types in other.types.items():
            for name, found in types.items():
                self._count(path, name, found.count, found.example)
        self.is_cut |= other.is_cut

    def _count(self, path: str, name: str, count: int, example: Example) -> None:
        types = self.types.get(path)
        if types is None:
            if len(self.types) >= MAX_FIELDS:
                self.is_cut = True
                return
            types = self.types[path] = {}
        known = types.get(name)
        types[name] = Type(count, example) if known is None else Type(known.count + count, min(known.example, example))

    def rows(self) -> Iterator[FieldRow]:
        """Yield the fields by path."""
        for path in sorted(self.types):
            if path != ROOT or len(self.types[ROOT]) > 1:
                yield FieldRow(path, self.types[path], self._parents(path))

    def _parents(self, path: str) -> int:
        """Return the number of objects that could have the field, or of arrays that could have the element."""
        if path == ROOT:
            return sum(each.count for each in self.types[ROOT].values())
        parent, kind = (path[:-2], ARRAY) if path.endswith("[]") else (path.rpartition(".")[0], OBJECT)
        found = self.types.get(parent, {}).get(kind)
        return found.count if found is not None else 0


@dataclass(frozen=True)
class FieldRow:
    """A field with its types, and the number of the objects that could have it."""

    path: str
    types: dict[str, Type]
    parents: int

    @property
    def present(self) -> float:
        """The share of the objects that have the field."""
        if not self.parents:
            return 0.0
        return min(1.0, sum(each.count for each in self.types.values()) / self.parents)

    @property
    def is_conflict(self) -> bool:
        """Whether a table could not have the field as one column: null fits all types, integer fits double."""
        kinds = {"double" if name == "integer" else name for name in self.types} - {"null"}
        return len(kinds) > 1


class Shapes:
    """Counts messages by shape, and at intervals the fields of the shapes."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._counts: dict[Shape, tuple[list[int], Example]] = {}

    def add(self, value: Any, index: int, example_of: Callable[[int], Example]) -> None:
        """Count a message. `example_of` returns its position, and is called only for a new shape."""
        shape = shape_of(value)
        known = self._counts.get(shape)
        if known is not None:
            known[0][0] += 1
            return
        if len(self._counts) >= _MAX_SHAPES:
            self.flush()
        self._counts[shape] = [1], example_of(index)

    def flush(self) -> None:
        """Bring the fields up to date."""
        for shape, ((count,), example) in self._counts.items():
            self._fields.add(ROOT, shape, count, example)
        self._counts.clear()
