"""Messages that are text in UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Text:
    """Strings."""

    name = "text in UTF-8"

    def decode_all(self, bodies: pa.Array) -> pa.Array | None:
        import pyarrow as pa

        try:
            return bodies.cast(pa.string())
        except pa.ArrowInvalid:
            return None

    def decode_each(self, bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        import pyarrow as pa

        malformed: dict[int, str] = {}
        texts: list[str | None] = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                texts.append(body.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                malformed[row] = f"{error.reason} at byte {error.start}"
        return pa.array(texts, pa.string()), malformed
