"""Columns of headers in the form of a request body (`pyspark_nsq.headers`), made without a step for each row.

Theory of operation. All headers of a batch are one sequence of items: a row, a name and a value. The items are sorted
by row and name, and each becomes its bytes by Arrow. The bytes of consecutive items are consecutive in Arrow's buffer,
so that the headers of a row are a slice of it, and the result is a column with the same buffer and other offsets:

    items     row 0 a=1 | row 0 b=2 | row 2 a=3
    rows      |---- row 0 ----------|| row 2 -|        row 1 is empty
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_nsq.errors import RowError
from pyspark_nsq.headers import MAX_BYTES, MAX_COUNT
from pyspark_nsq.sink.sizes import size_prefixes

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"(?!nsq-)[a-z0-9][a-z0-9._-]{0,127}")
_CONTROL = r"[\x00-\x1f\x7f]"


def encoded_headers(rows: int, maps: pa.Array | None, single: Mapping[str, pa.Array]) -> pa.Array | None:
    """Return the encoded headers of each row as a binary column; None when no row has any.

    `maps` is a column of maps, `single` has columns of one header each, which override those of the maps. Headers
    whose value is null are left out. Raises RowError.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    items = _items(maps, single)
    if not items.num_rows:
        return None
    names = items["name"].combine_chunks().dictionary_encode()
    known = names.dictionary.to_pylist()
    for name in known:
        if _NAME.fullmatch(name) is None:
            raise RowError(
                f'"{name[:128]}" is no name of a header: 1 to 128 letters, digits, ".", "_" and "-", not from "nsq-" on'
            )
    # The order of a row's items is that of the ranks of their names.
    ranks = _ranks(known)
    key = pc.add(pc.multiply(items["row"], len(known)), ranks.take(names.indices))
    order = pc.sort_indices(key)
    key = key.take(order).combine_chunks()
    if len(key) > 1:
        # Of items with the same row and name the last one counts, as in a dict.
        is_last = pc.not_equal(key.slice(0, len(key) - 1), key.slice(1))
        order = order.filter(pa.concat_arrays([is_last, pa.array([True])]))
    return _joined(rows, items.take(order), known, names.indices.take(order))


def _items(maps: pa.Array | None, single: Mapping[str, pa.Array]) -> pa.Table:
    """Return the headers as a table of rows, names in lower case, and values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = pa.schema({"row": pa.int64(), "name": pa.string(), "value": pa.string()})
    parts = [schema.empty_table()]
    if maps is not None:
        listed = maps.cast(pa.list_(pa.struct({"key": pa.string(), "value": pa.string()})))
        items = listed.flatten()
        columns = [pc.list_parent_indices(listed).cast(pa.int64()), pc.utf8_lower(items.field(0)), items.field(1)]
        parts.append(pa.table(columns, schema=schema))
    for name, column in single.items():
        places = pa.array(range(len(column)), pa.int64())
        parts.append(pa.table([places, pa.repeat(name, len(column)), column.cast(pa.string())], schema=schema))
    found = pa.concat_tables(parts)
    return found.filter(pc.is_valid(found["value"])).combine_chunks()


def _ranks(names: list[str]) -> pa.Array:
    import pyarrow as pa

    places = {name: rank for rank, name in enumerate(sorted(names))}
    return pa.array([places[name] for name in names], pa.int64())


def _joined(rows: int, items: pa.Table, names: list[str], indices: pa.Array) -> pa.Array:
    """Return the bytes of the items of each row. The items are sorted by row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = items["value"].combine_chunks().cast(pa.binary())
    _check_values(items, values)
    heads = pa.array([bytes((len(name),)) + name.encode() for name in names], pa.binary()).take(indices)
    joined = pc.binary_join_element_wise(heads, size_prefixes(values, "H"), values, b"")
    _, ends, data = joined.buffers()
    bounds = memoryview(ends).cast("i")
    runs = pc.run_end_encode(items["row"].combine_chunks())
    offsets, before = array("i"), 0
    for row, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        offsets.extend([bounds[before]] * (row + 1 - len(offsets)))
        if stop - before > MAX_COUNT or bounds[stop] - bounds[before] > MAX_BYTES:
            raise RowError(f"a message has {MAX_COUNT} headers at most, in {MAX_BYTES} bytes")
        before = stop
    offsets.extend([bounds[before]] * (rows + 1 - len(offsets)))
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


def _check_values(items: pa.Table, values: pa.Array) -> None:
    import pyarrow.compute as pc

    is_wrong: Any = pc.or_(
        pc.match_substring_regex(items["value"].combine_chunks(), _CONTROL),
        pc.greater(pc.binary_length(values), MAX_BYTES),
    )
    at = pc.index(is_wrong, True).as_py()
    if at >= 0:
        name = items["name"][at].as_py()
        raise RowError(f'the header "{name}" has a control character, or more than {MAX_BYTES} bytes')
