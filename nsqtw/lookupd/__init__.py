"""nsqlookupd: where which topics are to be found (suite specification 1)."""
