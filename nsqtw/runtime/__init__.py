"""The reactor, threads, turns and memory of a process."""
