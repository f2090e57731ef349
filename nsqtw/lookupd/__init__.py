"""nsqlookupd: the directory of topics, channels and nsqds."""
