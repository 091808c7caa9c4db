"""Cases of bulk tensor copies and of clusters, for `tests.hopper_cases`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.hopper_cases import Case, Map, random_floats

# Bulk copies of tensors ----------------------------------------------------------------------------------------------

TENSOR = """
#ifndef TENSOR_HELPERS
#define TENSOR_HELPERS
struct __align__(64) Map { char bytes[128]; };
__device__ void wait(unsigned bar, unsigned parity)
{
    // A copy that brings other than the bytes that are awaited leaves what it brought, not a kernel without an end.
    for (unsigned tries = 0, done = 0; tries < 100 && !done; tries++)
        asm volatile("{\\n.reg .pred p;\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 1000000;\\n"
                     "selp.u32 %0, 1, 0, p;\\n}" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
}
#endif
extern "C" __global__ void kernel(const __grid_constant__ Map map, unsigned *array, const unsigned *from, unsigned *out,
                                  int words, int nbytes, int start, int x, int y, int z, int u, int v)
{
    extern __shared__ __align__(1024) unsigned char room[];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned bar = __cvta_generic_to_shared(&barrier), tile = __cvta_generic_to_shared(room) + start;
    for (int i = threadIdx.x; i < words; i += blockDim.x) ((unsigned *)room)[i] = FIRST;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        COPY
    }
    FINISH
    for (int i = threadIdx.x; i < words; i += blockDim.x) out[i] = ((unsigned *)room)[i];
}
"""
LOAD = """asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(nbytes) : "memory");
        asm volatile("cp.async.bulk.tensor.DIMd.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {COORDINATES}], [%2];" :: "r"(tile), "l"(&map), "r"(bar) AXES : "memory");"""
STORE = """asm volatile("HOW.DIMd.global.shared::cta.OPtile.bulk_group [%1, {COORDINATES}], [%0];"
                     :: "r"(tile), "l"(&map), "r"(bar) AXES : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");"""
WORDS = 4096  # of shared memory that a case copies out


def tensor_case(name: str, map_: Map, corner: tuple[int, ...], *, start: int = 0, store: str = "") -> Case:
    """Return a case of one tile: loaded, stored (store: 'store') or reduced (store: the operation)."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    map_ = replace(map_.filled(), place=1)
    width = map_.width
    reach = width * map_.sizes[0] + sum((n - 1) * s for n, s in zip(map_.sizes[1:], map_.strides, strict=True))
    if "float" in map_.dtype and store not in ("", "store"):
        kind = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[map_.dtype]
        array = random_floats(rng, (-(-reach // width),), kind, "normal").view(np.uint8)
        source = random_floats(rng, (4 * WORDS // width,), kind, "normal").view(np.uint32)
    else:
        array = rng.integers(0, 256, reach, dtype=np.uint8)
        source = rng.integers(0, 1 << 32, WORDS, dtype=np.uint32)
    tile = [map_.box[0], *(-(-b // s) for b, s in zip(map_.box[1:], map_.steps[1:], strict=True))]
    nbytes = int(np.prod(tile)) * width
    dim = len(map_.sizes)
    text = TENSOR.replace("COPY", STORE if store else LOAD).replace("FIRST", "from[i]" if store else "0xA5A5A5A5u")
    text = text.replace("FINISH", "__syncthreads();" if store else "wait(bar, 0);")
    text = text.replace("HOW", "cp.async.bulk.tensor" if store == "store" else "cp.reduce.async.bulk.tensor")
    text = text.replace("OPtile", "tile" if store == "store" else f"{store}.tile").replace("DIM", str(dim))
    text = text.replace("COORDINATES", ", ".join(f"%{3 + i}" for i in range(dim)))
    text = text.replace("AXES", "".join(f', "r"({axis})' for axis in "xyzuv"[:dim]))
    at = [np.int32(c) for c in (*corner, 0, 0, 0, 0, 0)[:5]]
    arguments = (
        map_,
        array,
        source,
        np.zeros(WORDS, np.uint32),
        np.int32(WORDS),
        np.int32(nbytes),
        np.int32(start),
        *at,
    )
    return Case(name, text, arguments, shared=4 * WORDS + 1024)


def tensor_cases() -> Iterator[Case]:
    """Yield cases of tiles with one to five dimensions."""
    plain = Map("uint16", (256, 64), (64, 16))
    for swizzle in (0, 32, 64, 128):
        swizzled = replace(plain, box=(swizzle // 2 or 64, 16), swizzle=swizzle)
        for corner in ((0, 0), (64, 8), (240, 60), (-8, -3), (304, 0), (-56, 63), (8, 70)):
            for how in ("", "store") if min(corner) >= 0 else ("",):
                yield tensor_case(f"tile {how} swizzle {swizzle} at {corner}", swizzled, corner, store=how)
        for start in (128, 512, 1024, 1152):
            yield tensor_case(f"tile swizzle {swizzle} in memory at {start}", swizzled, (8, 8), start=start)
    for dtype, side in (("uint8", 64), ("float32", 16), ("int64", 8), ("float64", 8), ("bfloat16", 32)):
        for how in ("", "store"):
            one = Map(dtype, (128, 40), (side, 12), swizzle=64 if how else 0)
            yield tensor_case(f"tile {how} of {dtype}", one, (16 // one.width, 5 if how else -2), store=how)
    yield tensor_case("tile 1d", Map("float32", (500,), (64,)), (472,))
    yield tensor_case("tile 3d", Map("float16", (64, 10, 6), (32, 5, 3)), (8, 7, -1))
    yield tensor_case("tile 3d store", Map("float16", (64, 10, 6), (32, 5, 3)), (8, 7, 4), store="store")
    yield tensor_case("tile 4d", Map("float32", (16, 5, 4, 3), (8, 3, 2, 2), swizzle=32), (-4, 3, 1, 2))
    five = Map("uint16", (16, 5, 4, 3, 3), (8, 3, 2, 2, 2))
    yield tensor_case("tile 5d", five, (8, 3, -1, 2, 1))
    yield tensor_case("tile 5d store", five, (8, 3, 1, 2, 1), store="store")
    yield tensor_case("tile steps", Map("uint16", (64, 40, 6), (32, 9, 4), steps=(1, 2, 3)), (0, 5, 1))
    yield tensor_case("tile steps store", Map("uint16", (64, 40), (32, 9), steps=(1, 2)), (0, 5), store="store")
    yield tensor_case("tile pitched", Map("float16", (50, 20), (32, 8), strides=(160,)), (32, 15))
    for dtype in ("float16", "bfloat16", "float32"):
        yield tensor_case(f"tile nan {dtype}", Map(dtype, (64, 20), (32, 8), fill="nan"), (48, 15))
    for operation, dtypes in (
        ("add", ("uint32", "int32", "uint64", "float32", "float16", "bfloat16")),
        ("min", ("int32", "uint32", "float16", "bfloat16", "int64")),
        ("max", ("int32", "uint32", "float16", "bfloat16")),
        ("and", ("uint32",)), ("or", ("uint32",)), ("xor", ("uint64",)), ("inc", ("uint32",)), ("dec", ("uint32",)),
    ):  # fmt: skip
        for dtype in dtypes:
            yield tensor_case(f"tile {operation} {dtype}", Map(dtype, (64, 20), (16, 8)), (56, 15), store=operation)
    for swizzle, side in ((128, 32), (128, 8), (64, 8), (128, 16)):
        for how in ("", "store"):
            narrow = replace(plain, box=(side, 16), swizzle=swizzle)
            yield tensor_case(f"narrow tile {how} of {side} swizzle {swizzle}", narrow, (8, 8), store=how)
    # A GPU may stop these cases with an illegal instruction.
    for how, corner in (
        ("", (7, 8)), ("store", (7, 8)), ("", (300, 0)), ("store", (-8, 8)), ("store", (8, -3)), ("store", (-64, 8)),
        ("add", (8, -3)),
    ):  # fmt: skip
        of = replace(plain, dtype="uint32" if how == "add" else plain.dtype, box=(32, 16))
        yield tensor_case(f"edge tile {how} at {corner}", of, corner, store=how)


# Clusters ------------------------------------------------------------------------------------------------------------

CLUSTER = """
GROUPS
#ifndef CLUSTER_HELPERS
#define CLUSTER_HELPERS
__device__ unsigned shared_of(const void *p) { return __cvta_generic_to_shared(p); }
__device__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ void wait_cluster(unsigned bar, unsigned parity)
{
    asm volatile("{\\n.reg .pred p;\\nAGAIN:\\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\\n"
                 "@p bra DONE;\\nbra AGAIN;\\nDONE:\\n}" :: "r"(bar), "r"(parity) : "memory");
}
__device__ unsigned mapped(unsigned address, unsigned rank)
{
    unsigned found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(address), "r"(rank));
    return found;
}
__device__ void expect(unsigned bar, unsigned nbytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(nbytes) : "memory");
}
#define READ(variable, name) unsigned variable; asm volatile("mov.u32 %0, %%" name ";" : "=r"(variable));
#endif
extern "C" __global__ void __cluster_dims__(CX, CY, CZ) kernel(const unsigned *in, unsigned *out)
{
    __shared__ __align__(128) unsigned tile[256];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), t = threadIdx.x;
    READ(rank, "cluster_ctarank") READ(size, "cluster_nctarank")
    unsigned bar = shared_of(&barrier);
    tile[t] = in[128 * block + t];
    tile[128 + t] = 0;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(ARRIVALS));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    cluster_sync();
    unsigned r = 0;
    BODY
    cluster_sync();
    out[128 * block + t] = r;
}
"""
REGISTERS = """
    READ(a, "clusterid.x") READ(b, "clusterid.y") READ(c, "clusterid.z")
    READ(d, "nclusterid.x") READ(e, "nclusterid.y") READ(f, "nclusterid.z")
    READ(g, "cluster_ctaid.x") READ(h, "cluster_ctaid.y") READ(i, "cluster_ctaid.z")
    READ(j, "cluster_nctaid.x") READ(k, "cluster_nctaid.y") READ(l, "cluster_nctaid.z")
    unsigned o;
    asm volatile("{\\n.reg .pred p;\\nmov.pred p, %%is_explicit_cluster;\\nselp.u32 %0, 1, 0, p;\\n}" : "=r"(o));
    r = a + 3 * b + 7 * c + 31 * (d + 3 * e + 7 * f) + 1009 * (g + 3 * h + 7 * i) + 32003 * (j + 3 * k + 7 * l)
        + 1000003 * rank + 7000003 * size + 90000007 * o;"""
BODIES: dict[str, tuple[int, str]] = {
    "registers": (1, REGISTERS),
    "remote loads": (1, """
    for (unsigned other = 0; other < size; other++) {
        unsigned x;
        asm volatile("ld.shared::cluster.u32 %0, [%1];"
                     : "=r"(x) : "r"(mapped(shared_of(tile + (t + other) % 128), other)));
        r = r * 31 + x;
    }"""),
    "generic addresses": (1, """
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    unsigned *far = cluster.map_shared_rank(tile, (rank + 1) % size);
    r = far[127 - t] + cluster.query_shared_rank(far) * 1000 + cluster.block_rank() + 100000 * cluster.num_blocks();
    far[128 + t] = r;
    cluster.sync();
    r = r * 31 + tile[128 + t];"""),
    "remote atomics": (1, """
    asm volatile("red.shared::cluster.add.u32 [%0], %1;"
                 :: "r"(mapped(shared_of(tile + 128 + t % 7), t % size)), "r"(t) : "memory");
    unsigned old;
    asm volatile("atom.shared::cluster.or.b32 %0, [%1], %2;" : "=r"(old)
                 : "r"(mapped(shared_of(tile + 140), 0)), "r"(1u << (rank * 4 + t / 32)) : "memory");
    cluster_sync();
    r = tile[128 + t];"""),
    "remote arrive": (256, """
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(mapped(bar, 0)) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;"
                 :: "r"(mapped(bar, 1)), "r"(1) : "memory");
    wait_cluster(bar, 0);
    r = 1;"""),
    "asynchronous stores": (1, """
    unsigned to = (rank + 1) % size, far = mapped(shared_of(tile + 128 + t), to), there = mapped(bar, to);
    if (t == 0) expect(bar, 512);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :: "r"(far), "r"(tile[t] + rank), "r"(there) : "memory");
    wait_cluster(bar, 0);
    r = tile[128 + t];"""),
    "asynchronous reductions": (1, """
    unsigned to = (rank + 1) % size, far = mapped(shared_of(tile + 128 + t % 16), to), there = mapped(bar, to);
    if (t == 0) expect(bar, 512);
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                 :: "r"(far), "r"(tile[t] + rank), "r"(there) : "memory");
    wait_cluster(bar, 0);
    r = tile[128 + t];"""),
    "copies between blocks": (1, """
    unsigned to = (rank + 1) % size;
    if (t == 0) {
        expect(bar, 512);
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(mapped(shared_of(tile + 128), to)), "r"(shared_of(tile)), "r"(512), "r"(mapped(bar, to))
                     : "memory");
    }
    wait_cluster(bar, 0);
    r = tile[128 + t];"""),
    "multicast": (1, """
    if (t == 0) expect(bar, 512);
    cluster_sync();
    if (t == 0 && rank == size - 1)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1], %2, [%3], %4;"
                     :: "r"(shared_of(tile + 128)), "l"(in + 128 * block), "r"(512), "r"(bar),
                        "h"((short)((1 << size) - 1)) : "memory");
    wait_cluster(bar, 0);
    r = tile[128 + t];"""),
    "bulk reduction": (1, """
    if (t == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
                     :: "l"(out + 128 * gridDim.x * gridDim.y * gridDim.z), "r"(shared_of(tile)), "r"(512) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }"""),
    "split barrier": (1, """
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    r = in[t] * 3;
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (t < 64) { asm volatile("barrier.cluster.arrive.relaxed;"); r += 5; }
    else { r += 7; asm volatile("barrier.cluster.arrive.relaxed;"); }
    asm volatile("barrier.cluster.wait;");"""),
    "elect": (1, """
    unsigned lane, chosen;
    asm volatile("{\\n.reg .pred p;\\nelect.sync %0|p, %2;\\nselp.u32 %1, 1, 0, p;\\n}"
                 : "=r"(lane), "=r"(chosen) : "r"(0xffffffff));
    r = lane * 2 + chosen;
    if (t % 32 >= 5) {
        asm volatile("{\\n.reg .pred p;\\nelect.sync %0|p, %2;\\nselp.u32 %1, 1, 0, p;\\n}"
                     : "=r"(lane), "=r"(chosen) : "r"(0xffffffe0));
        r = r * 100 + lane * 2 + chosen;
    }"""),
    "ranks of addresses": (1, """
    unsigned long long generic = (unsigned long long)(tile + t), far;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(far) : "l"(generic), "r"(size - 1));
    unsigned own, other, third;
    asm volatile("getctarank.u64 %0, %1;" : "=r"(other) : "l"(far));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(third) : "r"(mapped(bar, 1 % size)));
    asm volatile("getctarank.u64 %0, %1;" : "=r"(own) : "l"(generic));
    r = own + 10 * other + 100 * third + 1000 * *(unsigned *)far;"""),
}  # fmt: skip


def cluster_cases() -> Iterator[Case]:
    """Yield cases with clusters of several shapes."""
    rng = np.random.default_rng(5)
    for name, (arrivals, body) in BODIES.items():
        for dims, grid in (((2, 1, 1), (4, 1, 1)), ((2, 2, 1), (4, 2, 2)), ((1, 2, 4), (3, 2, 4))):
            if name == "remote arrive" and dims != (2, 1, 1):
                continue
            groups = "#include <cooperative_groups.h>" if "cooperative_groups" in body else ""
            text = CLUSTER.replace("GROUPS", groups).replace("BODY", body).replace("ARRIVALS", str(arrivals))
            for letter, side in zip(("CX", "CY", "CZ"), dims, strict=True):
                text = text.replace(letter, str(side))
            blocks = int(np.prod(grid))
            values = rng.integers(0, 1 << 16, 128 * blocks, dtype=np.uint32)
            out = np.zeros(128 * (blocks + 1), np.uint32)
            yield Case(f"cluster {'x'.join(map(str, dims))} {name}", text, (values, out), grid)
