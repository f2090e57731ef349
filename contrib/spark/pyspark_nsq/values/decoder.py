"""Decoding of the column ``value``, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from pyspark_nsq.errors import ValueFormatError
from pyspark_nsq.options.values import AVRO, JSON, STRING, VALUE, Values

if TYPE_CHECKING:
    import pyarrow as pa

#: A function from the number of a row to a text that identifies its message.
Locate = Callable[[int], str]


class Form(Protocol):
    """A form of messages."""

    name: str

    def decode_all(self, bodies: pa.Array) -> pa.Array | None:
        """Return the column, or None when a body is not of this form, or cannot be decoded with the others."""

    def decode_each(self, bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the column with null for malformed bodies, and the reason for each of these."""


class Decoder:
    """Decodes a column of binary values according to the options."""

    def __init__(self, form: Form, fails: bool) -> None:
        self._form, self._fails = form, fails

    def decode(self, bodies: pa.Array, locate: Locate) -> pa.Array:
        """Return the decoded column. Raises ValueFormatError for a malformed value, unless onMalformed is "null"."""
        found = self._form.decode_all(bodies)
        if found is not None:
            return found
        found, malformed = self._form.decode_each(bodies)
        if malformed and self._fails:
            row = min(malformed)
            raise ValueFormatError(
                f"{locate(row)}: the value is no {self._form.name} of this schema: {malformed[row]}; "
                'set the option "onMalformed" to "null" to get null for such values'
            )
        return found


def decoder(options: Values) -> Decoder | None:
    """Return the decoder of a read; None when values are not decoded. Raises OptionError without fastavro."""
    fails = options.on_malformed == "fail"
    if options.value_format == STRING:
        from pyspark_nsq.values.text import Text

        return Decoder(Text(), fails)
    if options.value_format == JSON:
        from pyspark_nsq.values.json_documents import JsonDocuments

        return Decoder(JsonDocuments(options.arrow_value_type()), fails)
    if options.value_format == AVRO:
        from pyspark_nsq.values.avro_records import AvroRecords

        return Decoder(AvroRecords(str(options.value_schema), options.arrow_value_type()), fails)
    return None


def shaped(options: Values, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a channel with the columns and the values of the options."""
    import pyarrow as pa

    decode = decoder(options)
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if decode is not None:
            columns[VALUE] = decode.decode(columns[VALUE], _of_channel(batch))
        yield pa.record_batch({name: columns[name] for name in options.columns or columns})


def _of_channel(batch: pa.RecordBatch) -> Locate:
    def locate(row: int) -> str:
        topic, channel, identity, nsqd = (
            batch.column(name)[row].as_py() for name in ("topic", "channel", "id", "nsqd")
        )
        return f'topic "{topic}", channel "{channel}" on {nsqd}, message {identity}'

    return locate
