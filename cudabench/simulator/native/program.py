"""Encodes a kernel's code as the arrays that the native engine takes. This is done once per kernel."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.check.local_pointers import pointer_lines
from cudabench.simulator.count.atomics import served
from cudabench.simulator.native import (  # noqa: F401 - imported for what they register
    atomics,
    conversions,
    floats,
    integers,
    memory,
    scalar,
    warp,
)
from cudabench.simulator.native.emit import NativeOp
from cudabench.simulator.native.layout import ACCESS, CODE_BLOCK, ENDS, KINDS, OP, REGISTER, SPACE, SPACES
from cudabench.simulator.program.code import FREE, Block, Code, Op
from cudabench.simulator.values import UNDEFINED, Array

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp

_INDICES = [f"%{name}.{axis}" for name in ("tid", "ctaid", "ntid", "nctaid") for axis in "xyz"]
SPECIAL = {
    name: number for number, name in enumerate((
        *_INDICES, "%laneid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt",
        "%lanemask_ge", "%dynamic_smem_size", "%total_smem_size",
    ), 1)
}  # fmt: skip
SPECIAL |= {name.replace("ctaid", "clusterid"): SPECIAL[name] for name in _INDICES}  # here a cluster has one block
VALUES = {
    "WARP_SZ": 32, "%smid": 0, "%nsmid": 1, "%gridid": 0, "%is_explicit_cluster": 0, "%cluster_ctarank": 0,
    "%cluster_nctarank": 1, **{f"%cluster_{n}ctaid.{axis}": len(n) for n in ("", "n") for axis in "xyz"},
}  # fmt: skip
FRESH = 100  # this value of `special` means that the register gets its initial value at the start of each block
REFUSAL = "refusal"
OTHER = "other"  # the operation that is encoded for each instruction that the native engine does not support
FAR = np.iinfo(np.int64).max
REDUCTIONS = {"popc": 1, "and": 2, "or": 3}  # the numbers of the reductions of bar.red


class Encoded(NamedTuple):
    """A kernel's code as arrays of records of `layout`.

    `ops`: OP; `blocks`: CODE_BLOCK; `tables`: the block numbers in jump tables, int32; `accesses`: ACCESS; `registers`:
    REGISTER; `made`: the memory instructions in the order of `accesses`; `ordered`: whether results may depend on the
    order of the blocks.
    """

    ops: Array
    blocks: Array
    tables: Array
    accesses: Array
    registers: Array
    made: tuple[MemoryOp, ...]
    ordered: bool


def refusal(code: Code) -> str:
    """Return the reason why the native engine runs no launch of a kernel; "" if it may run some."""
    if REFUSAL in code.encoded:
        return str(code.encoded[REFUSAL])
    reasons = {
        "the kernel synchronises its grid": code.cooperative,
        "the kernel takes locks": code.locks,
        "the kernel polls": code.waits or bool(code.polling),
        "the kernel orders its accesses by fences": code.orders,
        "the kernel enters functions by jumps": code.calls,
        "the kernel uses several memory proxies": code.proxies,
        "a register has an unusual width": any(width not in (1, 8, 16, 32, 64, 128) for width in code.widths),
        "the kernel reads an unusual special register": not code.special.keys() <= SPECIAL.keys() | VALUES.keys(),
        "the kernel stores pointers to local memory": bool(pointer_lines(code)),
        "the kernel frees memory": any(op.function == FREE for block in code.blocks for op in block.ops),
        "the kernel is empty": not code.blocks,
    }
    reason = code.encoded[REFUSAL] = next((reason for reason, holds in reasons.items() if holds), "")
    return reason


def encode(code: Code, names: dict[str, int]) -> Encoded:
    """Return a kernel's code as arrays; names: the number of each operation of the library, keyed by name."""
    ops: list[tuple[Any, ...]] = []
    tables: list[int] = []
    made: dict[int, tuple[int, MemoryOp]] = {}  # (index, the memory instruction), keyed by id
    blocks = np.zeros(len(code.blocks), CODE_BLOCK)

    def row(op: Op, step: NativeOp) -> tuple[Any, ...]:
        access = -1 if step.access is None else made.setdefault(id(step.access), (len(made), step.access))[0]
        into = (*step.into, *[-1] * (4 - len(step.into)))
        sources = (*step.sources, *[-1] * (8 - len(step.sources)))
        return (
            names[step.name], op.guard, op.inverted, op.line.ptx_line, into, sources, access, step.flags, step.immediate
        )  # fmt: skip

    for block in code.blocks:
        record = blocks[block.number]
        record["first"] = len(ops)
        for op in block.ops:
            for step in _native(op, code, names):
                ops.append(row(op, step))
        record["count"] = len(ops) - record["first"]
        record["weight"], record["rank"] = block.weight, block.rank
        record["members"] = _members(block)
        record["warp_barrier"] = bool(block.ops) and block.ops[0].function == "__syncwarp"
        for name in ("guard", "selector", "into", "predicate", "expected"):
            record[name] = -1
        end = block.terminator
        if end is not None and not _ends(end, record, tables, code):
            ops.append(row(end, NativeOp(OTHER)))
            record["count"] += 1
    registers = np.zeros(len(code.widths), REGISTER)
    registers["bits"] = [width if width != 128 else 64 for width in code.widths]
    initial = zip(code.initial, code.widths, strict=True)
    values = [UNDEFINED.get(width, 0) if value is None else value for value, width in initial]
    registers["value"] = np.array([value & (1 << 64) - 1 for value in values], np.uint64).view(np.int64)
    live, encoded = code.blocks[0].live, np.array(ops, OP)
    written = {*encoded["into"].flat, *(index for block in code.blocks for op in block.every for index in op.defs)}
    registers["special"] = [FRESH * (live >> index & 1 and index in written) for index in range(len(registers))]
    for name, index in code.special.items():
        registers[index]["special"] = SPECIAL.get(name, 0)
        registers[index]["value"] = VALUES.get(name, 0)
    accesses = np.zeros(len(made), ACCESS)
    alike = _alike(code)
    for place, access in made.values():
        _fill_access(accesses[place], access, code)
        accesses[place]["uniform"] = id(access) in alike
    instructions = tuple(access for _, access in made.values())
    return Encoded(
        encoded, blocks, np.array(tables or [0], np.int32), accesses, registers, instructions,
        atomics.ordered(code, instructions),
    )  # fmt: skip


def _native(op: Op, code: Code, names: dict[str, int]) -> list[NativeOp]:
    """Return the native operations of one instruction, after checks that its registers have been written."""
    native = op.native
    if op.run is None and native is None:
        return []
    observed = native is not None and any(
        step.access and (step.access.guess or step.access.polls) for step in native.ops
    )
    if native is None or observed or op.watched or not {step.name for step in native.ops} <= names.keys():
        return [NativeOp(OTHER)]
    checks = [NativeOp(f"defined.{code.widths[index]}", (), (index,)) for index in op.undefined]
    return [*checks, *native.ops]


def _members(block: Block) -> int:
    """Return the register of the member mask if a basic block begins with a warp-wide instruction.

    Return -2 if all lanes are members, and -1 if the block does not begin with a warp-wide instruction.
    """
    if not block.ops or block.ops[0].kind != "collective":
        return -1
    return -2 if block.ops[0].native is None else block.ops[0].native.members


def _ends(end: Op, record: Any, tables: list[int], code: Code) -> bool:
    """Fill in how a basic block ends; return whether the native engine can run this end. Jump tables go to `tables`."""
    if end.kind not in ENDS or (end.kind == "exit" and end.run is not None):
        return False
    record["guard"], record["inverted"] = end.guard, end.inverted
    barrier = end.barrier
    if end.kind == "barrier":
        if barrier is None or getattr(barrier, "arrive", True):
            return False
        if barrier.count is not None:
            if code.widths[barrier.count] != 32:
                return False
            record["expected"] = barrier.count
        if barrier.reduces is not None:
            operation, record["into"], record["predicate"], record["flip"] = barrier.reduces
            record["reduction"] = REDUCTIONS[operation]
            if code.widths[record["into"]] != (32 if operation == "popc" else 1):
                return False
    elif end.kind == "branch":
        record["target"] = end.targets[0]
    elif end.kind == "table":
        record["target"], record["targets"], record["selector"] = len(tables), len(end.targets), end.selector
        tables.extend(end.targets)
    record["end"] = ENDS[end.kind]
    return True


def _alike(code: Code) -> set[int]:
    """Return the ids of the stores of one element whose value is surely the same in all lanes.

    The value is a literal, a parameter of the kernel, or a sum or difference of these. It may pass through registers
    that nothing else writes and that are not read before they are written.
    """
    writers: dict[int, list[tuple[Op, NativeOp | None]]] = defaultdict(list)
    stores: list[tuple[MemoryOp, int]] = []
    for op in (op for block in code.blocks for op in block.every):
        made = op.native.ops if op.native is not None else ()
        for step in made:
            for index in step.into:
                writers[index].append((op, step))
            if step.access is not None and step.access.kind == "store" and step.access.count == 1:
                stores.append((step.access, step.sources[1]))
        for index in {*op.defs}.difference(*(step.into for step in made)):
            writers[index].append((op, None))

    def same(index: int, width: int) -> bool:
        value = code.initial[index]
        if index not in writers:
            fits = value is not None and code.widths[index] > 1 and (width >= 4 or 0 <= value < 1 << 8 * width)
            return fits and index not in code.special.values()
        if code.blocks[0].live >> index & 1 or any(op.guard >= 0 or step is None for op, step in writers[index]):
            return False
        ((name, sources), *others) = {(step.name, step.sources) for _, step in writers[index] if step is not None}
        if others or (len(writers[index]) > 1 and not sources):
            return False
        resized = name.startswith("resize.") and writers[index][0][0].opcode == "st"
        parameter = name.startswith("ld.param.") and width >= 4
        return parameter or ((resized or name in _KEPT) and all(same(source, width) for source in sources))

    return {id(access) for access, source in stores if same(source, access.width)}


# Operations whose result is the same in all lanes if each of their operands is the same in all lanes.
_KEPT = ("mov.8", "mov.16", "mov.32", "mov.64", "add.32", "add.64", "sub.32", "sub.64")


def _fill_access(record: Any, access: MemoryOp, code: Code) -> None:
    record["number"] = [access.numbers.get(space, -1) for space in SPACES]
    record["kind"], record["space"] = KINDS[access.kind], SPACE.get(access.space, SPACE["generic"])
    if access.space == "const":
        record["space"] = SPACE["constant"]
    record["size"], record["width"], record["count"] = access.size, access.width, access.count
    record["line"], record["skewed"] = access.location.ptx_line, access.skewed
    record["guess"] = access.guess
    if access.chosen is not None:
        register, when = access.chosen
        record["chosen"] = register + 1 if when else -register - 1
    record["returns"] = access.target is not None and access.target in code.read
    record["local_low"], record["local_high"] = access.bounds or (FAR, 0)
    record["shared_low"], record["shared_high"] = access.shared_bounds or (FAR, 0)
    record["issued"] = -1
    if access.kind == "atomic":
        record["served"] = atomics.SERVED.index(served(*atomics.operation(access, code), False))
