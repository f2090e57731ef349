"""Archives of topics in a data lake: their layout, writing, compaction, reading and verification."""
