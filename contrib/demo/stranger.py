"""The consumer of another project: gnsq from PyPI. It connects again by itself.

python -m contrib.demo.stranger HOST:PORT TOPIC CHANNEL LEDGER
"""

import logging
import sys
from pathlib import Path

import gnsq

from contrib.demo.ledger import LedgerWriter, identity

_IN_FLIGHT = 200


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    address, topic, channel, path = sys.argv[1:]
    # max_tries: gnsq would drop a message delivered that often; here none may be dropped.
    consumer = gnsq.Consumer(topic, channel, address, max_in_flight=_IN_FLIGHT, max_tries=0)

    with LedgerWriter(Path(path)) as ledger:

        def note(consumer: gnsq.Consumer, message: gnsq.Message) -> None:
            """gnsq finishes the message when this returns."""
            ledger.record([identity(message.body)])

        consumer.on_message.connect(note)
        consumer.start()


if __name__ == "__main__":
    main()
