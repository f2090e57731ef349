"""Statistics of the broker, and their formats."""
