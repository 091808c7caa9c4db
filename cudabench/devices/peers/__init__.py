"""Libraries' calls for the operations' work: the rows of --peer, timed and verified as kernels are.

An operation's module names its calls (`Operation.peers`); here stands how each is made. A library is found as NVIDIA's
compilers are, in wheels, conda and the toolkit, and called by ctypes in the GPU's primary context, on the stream that
the samples run on; CUB, which is headers, by way of a small library that nvcc makes.
"""

from __future__ import annotations

from cudabench.devices.peers.call import Call, Room
from cudabench.records.planned import Operation, Peer, Problem

__all__ = ["Call", "Room", "load"]


def load(peer: Peer, operation: Operation, problem: Problem, room: Room) -> Call:
    """Return a library's call, ready for a problem. Raises DeviceUnusable where the library is not there, and
    DeviceError where it refuses."""
    from importlib import import_module

    library = import_module(f"cudabench.devices.peers.{peer.library}")
    call: Call = library.load(peer, operation, problem, room)
    return call
