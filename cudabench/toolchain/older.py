"""What CUDA took away from the language, for files from before, where today's has the same under another name."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The warp's instructions without a mask went with CUDA 9 for GPUs since Volta: they meant the lanes that are there.
DEFINITIONS = """
template <class T> static __device__ __forceinline__ T __shfl(T value, int lane, int width = 32)
{ return __shfl_sync(__activemask(), value, lane, width); }
template <class T> static __device__ __forceinline__ T __shfl_up(T value, unsigned int delta, int width = 32)
{ return __shfl_up_sync(__activemask(), value, delta, width); }
template <class T> static __device__ __forceinline__ T __shfl_down(T value, unsigned int delta, int width = 32)
{ return __shfl_down_sync(__activemask(), value, delta, width); }
template <class T> static __device__ __forceinline__ T __shfl_xor(T value, int mask, int width = 32)
{ return __shfl_xor_sync(__activemask(), value, mask, width); }
static __device__ __forceinline__ int __any(int predicate) { return __any_sync(__activemask(), predicate); }
static __device__ __forceinline__ int __all(int predicate) { return __all_sync(__activemask(), predicate); }
static __device__ __forceinline__ unsigned int __ballot(int predicate)
{ return __ballot_sync(__activemask(), predicate); }
"""
_NAMES = frozenset(re.findall(r"\b(__\w+)\((?:T|int) (?:value|predicate)", DEFINITIONS))


def defines_one(undefined: Iterable[str]) -> bool:
    """Tell whether one of the names that a compiler does not know is one of these."""
    return not _NAMES.isdisjoint(undefined)
