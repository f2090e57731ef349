"""Network connections: TCP, unix sockets, TLS, and limits on clients."""
