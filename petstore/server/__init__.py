"""The process that serves: sockets, connections, workers, start and drain."""
