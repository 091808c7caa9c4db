"""A fleet is many cards. Each card has a shard, a results file that its job writes; a report reads all shards.

`shard` measures the cards that a process sees. `task` and `submit` do this through Slurm, or on this machine. `reading`
and `findings` make a report of the shards.
"""
