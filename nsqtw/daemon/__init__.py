"""Processes: command line, pidfile, data path, log lines."""
