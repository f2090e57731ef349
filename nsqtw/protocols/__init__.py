"""Wire protocols: sans-IO, chosen by the first four bytes of a connection."""
