"""Client of nsqlookupd."""
