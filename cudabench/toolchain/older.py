"""What CUDA took away from the language, for files from before, where today's has the same under another name."""

from __future__ import annotations

import re

from cudabench.toolchain.diagnostics import undefined_names

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
#define __any(predicate) __any_sync(__activemask(), predicate)
#define __all(predicate) __all_sync(__activemask(), predicate)
#define __ballot(predicate) __ballot_sync(__activemask(), predicate)
static __device__ __forceinline__ float saturate(float x) { return __saturatef(x); }
"""
_NAMES = frozenset(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__any", "__all", "__ballot", "saturate"])
# The votes are still declared; it is the assembler that refuses them.
_WITHOUT_MASK = re.compile(r"Instruction '(?:vote|shfl)' without '\.sync' is not supported")


def needed(log: str) -> bool:
    """Tell whether a compiler's refusal is of one of these."""
    return bool(_WITHOUT_MASK.search(log)) or not _NAMES.isdisjoint(undefined_names(log))
