"""Child processes, limits of time and memory, signals, files. Every package may import this one."""
