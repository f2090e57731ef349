"""Our consumer: nsqtw.client on asyncio. It connects again when the broker goes away.

    python -m contrib.demo.consumer HOST:PORT TOPIC CHANNEL LEDGER

Each message is recorded in the ledger and then finished.
"""

import asyncio
import sys
from pathlib import Path

from contrib.demo.ledger import LedgerWriter, identity
from nsqtw.client import Message
from nsqtw.client.asyncio import Consumer
from nsqtw.errors import ConnectFailed

_IN_FLIGHT = 200
_RETRY_SECONDS = 0.1


async def consume(address: str, topic: str, channel: str, ledger: LedgerWriter) -> None:
    """Consume until the process ends."""

    def handle(message: Message) -> None:
        ledger.record([identity(message.body)])

    while True:
        consumer = Consumer(
            topic, channel, handle, nsqd=address, max_in_flight=_IN_FLIGHT, max_attempts=0, lookupd_poll_interval=1.0
        )
        try:
            await consumer.run()
        except ConnectFailed as failure:  # the broker has not started yet
            print(f"connecting again: {failure}", file=sys.stderr)
            await asyncio.sleep(_RETRY_SECONDS)


def main() -> None:
    address, topic, channel, path = sys.argv[1:]
    with LedgerWriter(Path(path)) as ledger:
        asyncio.run(consume(address, topic, channel, ledger))


if __name__ == "__main__":
    main()
