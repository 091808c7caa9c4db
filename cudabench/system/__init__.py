"""The machine around cudabench: child processes, limits of time and memory, signals, files. Any room may import it."""
