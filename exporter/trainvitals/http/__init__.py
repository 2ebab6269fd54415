"""The HTTP server: sockets, TLS, users, endpoints and health."""
