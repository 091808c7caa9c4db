"""How many bytes host code allocates for an array: by CUDA's allocators, and by what the text's functions do with them.

cudaMallocPitch, cudaMalloc3D: CUDA runtime API reference, memory management.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cudabench.userkernel.suggested.host_code import HostCode, Site, pitch_of
from cudabench.userkernel.suggested.host_words import commas, last_name, without_cast

# The place of the size among the arguments.
_PLAIN: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(
        ["cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaMallocHost",
         "cudaHostAlloc", "cuMemAlloc", "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemHostAlloc"], 1
    )
)  # fmt: skip
_PITCHED = ("cudaMallocPitch", "cuMemAllocPitch")
_SOLID = "cudaMalloc3D"


def allocations(host: HostCode, name: str, site: Site) -> list[tuple[int, list[str]]]:
    """Return the bytes with which an array is allocated before a launch, in order, as an expression."""
    found = []
    for at, function, inner in host.calls([*_PLAIN, *_PITCHED, _SOLID], *site.visible):
        if not inner or last_name(without_cast(inner[0])) != name:
            continue
        if function in _PLAIN and len(inner) >= 2:
            found.append((at, inner[1]))
        elif function in _PITCHED and len(inner) >= 4:
            found.append((at, ["(", *pitch_of(inner[2]), ")", "*", "(", *inner[3], ")"]))
        elif function == _SOLID and len(sides := extent(host, inner[1:2], site, at)) == 3:
            width, height, depth = sides
            found.append((at, [*pitch_of(width), "*", "(", *height, ")", "*", "(", *depth, ")"]))
    return found


def extent(host: HostCode, given: list[list[str]], site: Site, before: int) -> list[list[str]]:
    """Return the sides of a `cudaExtent`, the first in bytes, as expressions; [] where nothing says them."""
    words = given[0] if given else []
    if len(words) == 1:
        defined = host.definitions(words[0], site, before)
        words = defined[-1][1] if defined else []
    return commas(words[2:-1]) if words[:2] == ["make_cudaExtent", "("] else []
