"""Archives of topics in a data lake: their layout, and how they are written, compacted, read and verified."""
