"""HTTP requests to nsqd and nsqlookupd, from a reactor in a thread of its own."""
