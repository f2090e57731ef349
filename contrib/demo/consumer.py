"""Our consumer: one blocking socket, and a new one when the broker goes away.

    python -m contrib.demo.consumer HOST:PORT TOPIC CHANNEL LEDGER

Each message is noted in the ledger and then finished. Of NSQ's protocol this takes:

    -> "  V2"                        the magic, once
    -> SUB topic channel \\n          answered by the response OK
    -> RDY n \\n                      n messages may be in flight
    <- | size 4 | type 4 | data |    type 0 response, 1 error, 2 message; size counts type and data
       message: | timestamp 8 | attempts 2 | id 16 | body |
    -> FIN id \\n                     done with it
    -> NOP \\n                        the answer to the response _heartbeat_
"""

import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from contrib.demo.ledger import LedgerWriter, identity

_FRAME = struct.Struct(">ii")
_MESSAGE = struct.Struct(">qH16s")
_RESPONSE, _ERROR, _MESSAGE_TYPE = 0, 1, 2

_IN_FLIGHT = 200
_CHUNK_BYTES = 64 * 1024
_RETRY_SECONDS = 0.1
#: The broker sends a heartbeat every 30 s; nothing at all for this long means it is gone.
_SILENCE_SECONDS = 90


def frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """The complete frames in `buffer`, as (type, data); what is left in it is the start of the next."""
    offset = 0
    while len(buffer) - offset >= _FRAME.size:
        size, kind = _FRAME.unpack_from(buffer, offset)
        # The size counts the type, which has been read with it.
        end = offset + _FRAME.size - 4 + size
        if end > len(buffer):
            break
        yield kind, bytes(buffer[offset + _FRAME.size : end])
        offset = end
    del buffer[:offset]


def answers(received: list[tuple[int, bytes]], ledger: LedgerWriter) -> bytes:
    """Note all messages in `received`; what to send back. Raises ConnectionError for an error frame."""
    out = []
    noted = []
    for kind, data in received:
        if kind == _MESSAGE_TYPE:
            _timestamp, _attempts, message_id = _MESSAGE.unpack_from(data)
            noted.append(identity(data[_MESSAGE.size :]))
            out.append(b"FIN %s\n" % message_id)
        elif kind == _ERROR:
            raise ConnectionError(data.decode("utf-8", "replace"))
        elif data == b"_heartbeat_":
            out.append(b"NOP\n")
    ledger.record(noted)
    return b"".join(out)


def consume(address: tuple[str, int], topic: str, channel: str, ledger: LedgerWriter) -> None:
    """One connection. Raises OSError (of which ConnectionError is one) when it ends."""
    with socket.create_connection(address, _SILENCE_SECONDS) as connection:
        connection.sendall(f"  V2SUB {topic} {channel}\nRDY {_IN_FLIGHT}\n".encode())
        buffer = bytearray()
        while chunk := connection.recv(_CHUNK_BYTES):
            buffer += chunk
            connection.sendall(answers(list(frames(buffer)), ledger))
    raise ConnectionError("the broker closed the connection")


def main() -> None:
    address, topic, channel, path = sys.argv[1:]
    host, _, port = address.rpartition(":")
    with LedgerWriter(Path(path)) as ledger:
        while True:
            try:
                consume((host, int(port)), topic, channel, ledger)
            except OSError as failure:
                print(f"connecting again: {failure}", file=sys.stderr)
                time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main()
