"""Messages as strings or structs: decoding of the column ``value``."""
