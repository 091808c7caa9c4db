"""What an access wastes and what would mend it, in one line each: pure rules over counts."""

from __future__ import annotations

from cudabench.model import Access

SECTOR = 32
WORTH_SAYING = 1.1  # actual over ideal under which there is nothing to mend


def waste(access: Access) -> float | None:
    """Return the share of an access's sectors, or wavefronts in shared memory, that is waste: 0 to 1."""
    actual, ideal = access.sectors, access.ideal_sectors
    if access.space == "shared":
        actual, ideal = access.wavefronts, access.ideal_wavefronts
    if not actual or ideal is None:
        return None
    return 1 - ideal / actual


def advise(access: Access) -> str | None:
    """Return the advice for one source line's access, or None where it is as good as it can be."""
    if access.space == "local":
        return "local memory lives in device memory: index arrays with constants, or free registers"
    if access.space == "shared":
        return _shared(access)
    return _global(access)


def _shared(access: Access) -> str | None:
    if not access.wavefronts or not access.ideal_wavefronts:
        return None
    if access.wavefronts < WORTH_SAYING * access.ideal_wavefronts:
        return None
    ways = access.wavefronts / access.ideal_wavefronts
    return (
        f"{_verb(access)} take {ways:.3g} passes where 1 would do: lanes of a warp meet in one bank; "
        "pad the rows of the tile or swizzle its columns"
    )


def _global(access: Access) -> str | None:
    if not access.sectors or not access.ideal_sectors or access.sectors < WORTH_SAYING * access.ideal_sectors:
        return None
    actual, ideal = access.sectors / access.requests, access.ideal_sectors / access.requests
    text = f"{_verb(access)} touch {actual:.3g} sectors where {ideal:.3g} would do: "
    if access.sectors <= access.ideal_sectors + access.requests:
        return text + "they do not start at a multiple of 32 bytes; align rows or pad their pitch"
    verb = {"load": "read", "store": "write", "atomic": "update"}[access.op]
    if actual * SECTOR / max(ideal * SECTOR, 1) > 0.9 * SECTOR / access.bytes:
        repair = "let threadIdx.x run along a row, or turn a tile in shared memory"
        return f"{text}neighbouring threads {verb} a column; {repair}"
    return text + f"neighbouring threads {verb} {access.bytes} bytes each with gaps between; let them {verb} neighbours"


def _verb(access: Access) -> str:
    return {"load": "loads", "store": "stores", "atomic": "atomics"}[access.op]
