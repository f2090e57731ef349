"""Contract suites and fakes for authors of plugins, and for our own tests."""
