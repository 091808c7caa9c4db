"""What would mend an access that wastes, in one line each: pure rules over counts."""

from __future__ import annotations

from cudabench.explain.accesses import cost
from cudabench.model import Access

SECTOR = 32
CONTENDED = 256  # atomics on one address that are worth a word, if a block makes several of them
WORTH_SAYING = 1.1  # actual over ideal under which there is nothing to mend


def advise(access: Access) -> str | None:
    """Return the advice for one source line's access, or None where it is as good as it can be."""
    if access.space == "local":
        return "local memory lives in device memory: index arrays with constants, or free registers"
    spent = cost(access)
    if not spent.actual or not spent.ideal or spent.actual < WORTH_SAYING * spent.ideal:
        return None
    if access.space == "constant":
        return (
            f"lanes of a warp read {spent.actual / access.requests:.3g} addresses of constant memory, which serves one "
            "at a time; let them read the same, or keep the table in shared or global memory"
        )
    if access.space == "shared":
        return (
            f"{_verb(access)} take {spent.actual / spent.ideal:.3g} wavefronts where 1 would do: lanes of a warp meet "
            "in one bank; pad the rows of the tile or swizzle its columns"
        )
    return _global(access, spent.actual, spent.ideal)


def contention(hottest: int | None, blocks: int | None) -> str | None:
    """Return the advice for atomics of which so many hit one address, from so many blocks; None where few do."""
    if hottest is None or hottest < CONTENDED or hottest < 2 * (blocks or 1):
        return None
    whose = f" from {blocks} blocks" if blocks and blocks > 1 else ""
    return (
        f"{hottest} atomics{whose} hit one address, one after the other: add up within the warp (__reduce_add_sync, "
        "shuffles) and the block (shared memory) first, so that a block needs one atomic"
    )


def _global(access: Access, sectors: int, ideal_sectors: int) -> str:
    actual, ideal = sectors / access.requests, ideal_sectors / access.requests
    text = f"{_verb(access)} touch {actual:.3g} sectors where {ideal:.3g} would do: "
    if sectors <= ideal_sectors + access.requests:
        return text + "they do not start at a multiple of 32 bytes; align rows or pad their pitch"
    verb = {"load": "read", "store": "write", "atomic": "update"}[access.op]
    if actual * SECTOR / max(ideal * SECTOR, 1) > 0.9 * SECTOR / access.bytes:
        repair = "let threadIdx.x run along a row, or turn a tile in shared memory"
        return f"{text}neighbouring threads {verb} a column; {repair}"
    return text + f"neighbouring threads {verb} {access.bytes} bytes each with gaps between; let them {verb} neighbours"


def _verb(access: Access) -> str:
    return {"load": "loads", "store": "stores", "atomic": "atomics"}[access.op]
