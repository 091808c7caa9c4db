"""A fleet of cards: a shard for each card, written by its job, and a report on all shards.

`shard` measures the cards that a process sees, `task` and `submit` do so through Slurm or on this machine, `reading`
and `findings` make a report of the shards.
"""
