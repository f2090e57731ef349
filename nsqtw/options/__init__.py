"""Options of the daemons: declarations, sources of values, and documentation."""
