"""The edges: sockets, HTTP, the writer thread, the end of a turn."""
