"""The process itself: memory, garbage collection, threads, supervised tasks, the fair queue."""
