"""A fleet of cards: a shard each, written by whatever runs jobs there, and a report that merges them.

`shard` measures the cards that a process sees, `task` and `submit` do so through Slurm or on this machine, `reading`
and `findings` make a report of the shards.
"""
