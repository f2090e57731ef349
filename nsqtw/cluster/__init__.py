"""A cluster of nsqds and nsqlookupds: its state, merged over all nodes, and changes of all nodes."""
