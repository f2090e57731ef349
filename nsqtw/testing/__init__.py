"""Contract suites and fakes for those who write parts of their own, and for our own tests."""
