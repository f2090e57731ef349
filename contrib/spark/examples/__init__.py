"""Examples of pipelines."""
