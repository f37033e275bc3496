"""What serves a process: the socket, handshakes, connections, certificates, health."""
