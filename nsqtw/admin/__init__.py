"""nsqadmin: a web page and an HTTP API for a cluster."""
