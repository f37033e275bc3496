"""Serve a process: socket, handshakes, connections, certificates, health."""
