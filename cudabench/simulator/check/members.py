"""Checks the mask of a warp-wide function (such as `__shfl_sync`), which names the lanes that must execute it together.

A lane that executes the function must be in its own mask, and all lanes that the mask names must execute the function
(CUDA C++ Programming Guide, "Warp Shuffle Functions"; PTX ISA, "shfl.sync": otherwise the result is undefined). A lane
that has ended will never execute the function. If the last warp of a block is not full, a mask may name the missing
threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.code import Op

LANES = np.arange(32, dtype=np.uint32)
ALL = np.uint32(0xFFFFFFFF)


# For each opcode, the CUDA C++ function of each modifier; "" is the key for all other modifiers.
_FUNCTIONS = {
    "bar": {"": "syncwarp"},
    "barrier": {"": "syncwarp"},
    "shfl": {"up": "shfl_up_sync", "down": "shfl_down_sync", "bfly": "shfl_xor_sync", "": "shfl_sync"},
    "vote": {"all": "all_sync", "uni": "uni_sync", "ballot": "ballot_sync", "": "any_sync"},
    "match": {"all": "match_all_sync", "": "match_any_sync"},
    "redux": {mode: f"reduce_{mode or 'add'}_sync" for mode in ("min", "max", "and", "or", "xor", "")},
}


def function_name(ins: Instruction) -> str:
    """Return the name of the CUDA C++ function for a warp-wide PTX instruction."""
    if ins.opcode not in _FUNCTIONS:
        return ins.opcode
    names = _FUNCTIONS[ins.opcode]
    return "__" + next((names[word] for word in ins.modifiers if word in names), names[""])


def check_masks(machine: Machine, op: Op, masks: Array | None) -> Array | None:
    """Report lanes that are not in their own mask, and masks that name lanes which have ended.

    masks: the masks of the active lanes as 32-bit words, of shape (blocks or 1, threads or 1); None if all masks name
    the whole warp. Return the masks to use: if a lane is not in its mask, all masks name the whole warp, so that no
    consequences of this error are reported as well.
    """
    chunk = machine.chunk
    if masks is not None:
        in_mask = (broadcast(masks, chunk.shape) >> np.tile(LANES, chunk.warps)) & np.uint32(1)
        outside = chunk.real(machine.lanes() & (in_mask == 0))
        if outside.any():
            _, place = first_lane(outside, chunk)
            report_mask(
                machine, op, outside, place, int(broadcast(masks, chunk.shape)[place]),
                f"in which its own lane {place[1] % 32} is missing: let the mask name all lanes that come to this line",
            )  # fmt: skip
            masks = None if machine.mask is None else np.full((1, 1), ALL)
    # __syncwarp() waits only for lanes that have not ended (CUDA C++ Programming Guide, "Synchronization Functions").
    warp_barrier = op.function == "__syncwarp"
    exited: Any = machine.exited
    if exited is None or (warp_barrier and not op.line.group):
        return masks
    # The ended lanes that the masks name, of warps that also have lanes that still run.
    named_ended = chunk.real(exited) & chunk.of_warps(chunk.real(~exited)) & named(machine, masks)
    if named_ended.any() and warp_barrier:
        machine.hazards.ended(machine, op, named_ended)
    elif named_ended.any():
        words = np.where(machine.lanes(), ALL if masks is None else broadcast(masks, chunk.shape), np.uint32(0))
        _, (row, thread) = first_lane(named_ended, chunk)
        warp, lane = divmod(thread, 32)
        asking = row, 32 * warp + int(np.argmax(words[row, 32 * warp : 32 * warp + 32] >> np.uint32(lane) & 1))
        report_mask(
            machine, op, named_ended, asking, int(words[asking]),
            f"which names lane {lane}: thread {chunk.thread_index(thread)} has ended. Let all threads of the warp "
            "come, and put the condition around the work, or take the mask from __ballot_sync() of the condition",
        )  # fmt: skip
    return masks


def report_absent(machine: Machine, op: Op, absent: Array) -> None:
    """Report a warp-wide function of the active lanes whose masks name lanes (`absent`) that never come."""
    chunk, lanes = machine.chunk, machine.lanes()
    near = lanes & chunk.of_warps(absent)
    waiting = near if near.any() else lanes
    _, place = first_lane(waiting, chunk)
    _, other = first_lane(absent & (np.arange(chunk.threads) // 32 == place[1] // 32)[None, :], chunk)
    assert op.members is not None
    masks = op.members(machine)
    mask = 0xFFFFFFFF if masks is None else int(broadcast(masks, chunk.shape)[place])
    where = whereabouts(machine, place[0], other[1]) or "is elsewhere"
    report_mask(
        machine, op, waiting, place, mask,
        f"which names lane {other[1] % 32}: thread {chunk.thread_index(other[1])} {where} and never comes. Let all "
        "lanes that the mask names come to this line, or take the mask from __ballot_sync() of the condition",
    )  # fmt: skip


def whereabouts(machine: Machine, row: int, thread: int) -> str:
    """Return words for a message that say where a thread waits; '' if it waits neither at a barrier nor for its warp.

    row: the thread's block in the chunk.
    """
    parked = ((mask, f"waits at the barrier in line {op.line.line}") for _, mask, op, _ in machine.parked)
    blocks = machine.code.blocks
    waiting = ((mask, f"waits in line {blocks[at].ops[0].line.line}") for at, mask in machine.waiting.items())
    return next((where for mask, where in (*parked, *waiting) if machine.chunk.lanes(mask)[row, thread]), "")


def report_mask(machine: Machine, op: Op, lanes: Array, place: tuple[int, int], mask: int, what: str) -> None:
    """Report an error in a mask; `what`: a description of the error; `place`: (block in the chunk, thread) with this
    mask."""
    text = f"executes {op.function} with the mask {mask:#010x}, {what}"
    machine.hazards.report(machine, "invalid-mask", op.line, lanes, text, place)


def named(machine: Machine, masks: Array | None) -> Array:
    """Return the lanes that the masks of the active lanes name, as a mask of shape (blocks, threads).

    masks: see `check_masks`.
    """
    chunk, active = machine.chunk, machine.lanes()
    if masks is None:
        return chunk.of_warps(active)
    words = np.where(active, broadcast(masks, chunk.shape), np.uint32(0)).reshape(chunk.blocks, chunk.warps, 32)
    bits = np.bitwise_or.reduce(words, axis=2)[:, :, None] >> LANES & np.uint32(1)
    return bits.astype(bool).reshape(chunk.shape)


def missing(machine: Machine, op: Op) -> Array | None:
    """Return the lanes that the active lanes at a warp-wide instruction still wait for, or None if there are none.

    These lanes are named by the masks, have not ended and are not at the instruction.
    """
    if not machine.ready and not machine.waiting and not machine.parked:
        return None
    assert op.members is not None
    absent: Array = machine.chunk.real(named(machine, op.members(machine)) & ~machine.lanes())
    if machine.exited is not None:
        absent = absent & ~machine.exited
    return absent if absent.any() else None


def release_complete(machine: Machine) -> bool:
    """Release each waiting lane if all lanes that its mask names have arrived or ended.

    Return whether any lanes were released.
    """
    released = False
    mask = machine.mask
    for number in [*machine.waiting]:
        machine.mask = machine.waiting[number]
        lanes = machine.lanes()
        absent = missing(machine, machine.code.blocks[number].ops[0])
        if absent is None:
            machine.arrive(number, machine.waiting.pop(number))
            released = True
            continue
        blocked = machine.chunk.of_warps(absent)
        free = machine.chunk.real(lanes & ~blocked)
        if free.any() and number not in machine.ready:
            machine.waiting[number] = machine.chunk.real(lanes & blocked)
            machine.ready[number] = free
            machine.loose.add(number)
            released = True
    machine.mask = mask
    return released
