"""Messages that are records of Avro, without a header, as Spark's ``from_avro`` reads them. Needs fastavro."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.avro_schema import without_unknown_logical_types

if TYPE_CHECKING:
    import pyarrow as pa


class AvroRecords:
    """Structs of an Arrow type, from records of the schema `text`."""

    name = "Avro"

    def __init__(self, text: str, kind: pa.StructType) -> None:
        """Raises OptionError when fastavro is not installed, or does not take the schema."""
        try:
            import fastavro
        except ImportError:
            raise OptionError('"valueFormat" avro needs fastavro where the tasks run: pip install fastavro') from None
        try:
            self._schema = fastavro.parse_schema(without_unknown_logical_types(json.loads(text)))
        except Exception as error:  # of several bases
            raise OptionError(f'option "valueSchema": {str(error).splitlines()[0]}') from None
        self._read = fastavro.schemaless_reader
        self._kind = kind

    def decode_all(self, bodies: pa.Array) -> pa.Array | None:
        import pyarrow as pa

        try:
            return pa.array([self._record(body) for body in bodies.to_pylist()], self._kind)
        except Exception:  # each is looked at
            return None

    def decode_each(self, bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        import pyarrow as pa

        malformed: dict[int, str] = {}
        found: list[Any] = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                found.append(self._record(body))
                pa.array(found[-1:], self._kind)
            except Exception as error:  # fastavro raises any exception, depending on the bytes
                found[row:] = [None]
                malformed[row] = f"{type(error).__name__} {error}".strip()[:200]
        return pa.array(found, self._kind), malformed

    def _record(self, body: bytes) -> Any:
        stream = io.BytesIO(body)
        found = self._read(stream, self._schema, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes too many")
        return found
