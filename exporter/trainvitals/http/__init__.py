"""The HTTP server: sockets, TLS, authentication, endpoints and health."""
