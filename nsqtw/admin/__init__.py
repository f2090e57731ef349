"""nsqadmin: the web interface of a cluster."""
