"""From cases to results: the run loop, on a GPU in a process of its own or in the simulator."""
