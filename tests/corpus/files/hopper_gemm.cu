// A GEMM for Hopper: one warp group brings tiles by TMA, two multiply them with wgmma; a ring of stages between them.
// run: -k 'gemm<128,128,64,4>' -g '(M//128)*(N//128)' -b 384 --shared 132096 --arg M=256 --arg N=256 --arg K=320
//      --arg 'C=float32[M,N]:empty' --arg 'tensorMapA=tensormap(bfloat16[M,K]:normal(0,1), box=128x64, swizzle=128)'
//      --arg 'tensorMapB=tensormap(bfloat16[N,K]:normal(0,1), box=128x64, swizzle=128)' --rtol 1e-4 --atol 1e-3
//      --expect 'C=tensorMapA@np.transpose(tensorMapB)'
// expect: ok
#include <cassert>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cudaTypedefs.h>
#include <stdint.h>
#include <stdio.h>

typedef __nv_bfloat16 bf16;

__device__ static inline uint64_t matrix_descriptor_encode(uint64_t x) { return (x & 0x3FFFF) >> 0x4; }

__device__ uint64_t make_smem_desc(bf16 *ptr) {
    uint32_t addr = static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
    uint64_t desc = 0x0000000000000000;
    desc |= matrix_descriptor_encode(addr);
    desc |= matrix_descriptor_encode((uint64_t)16) << 16;
    desc |= matrix_descriptor_encode((uint64_t)1024) << 32;
    desc |= 1llu << 62; // 128B swizzle
    return desc;
}

__device__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ void warpgroup_commit_batch() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N> __device__ void warpgroup_wait() {
    static_assert(N >= 0 && N <= 7, "WGMMA wait: N must be in range [0, 7]");
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}
template <uint32_t RegCount> __device__ void warpgroup_reg_alloc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" : : "n"(RegCount));
}
template <uint32_t RegCount> __device__ void warpgroup_reg_dealloc() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" : : "n"(RegCount));
}

__device__ static __forceinline__ void init_barrier(uint64_t *bar, int thread_count) {
    uint32_t bar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(bar_ptr), "r"(thread_count));
}
__device__ static __forceinline__ void expect_bytes(uint64_t *bar, uint32_t bytes) {
    uint32_t bar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(bar_ptr), "r"(bytes));
}
__device__ static inline void load_async(bf16 *dst, void const *const src_tma_map, uint64_t *bar, int global_col_idx,
                                         int global_row_idx) {
    uint64_t tma_ptr = reinterpret_cast<uint64_t>(src_tma_map);
    uint32_t mbar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
    uint32_t dst_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(dst));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];"
                 :
                 : "r"(dst_ptr), "l"(tma_ptr), "r"(mbar_ptr), "r"(global_col_idx), "r"(global_row_idx)
                 : "memory");
}
__device__ static __forceinline__ void wait(uint64_t *bar, int kPhaseBit) {
    uint32_t mbar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
    asm volatile("{\n"
                 ".reg .pred                P1;\n"
                 "LAB_WAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
                 "@P1                       bra.uni DONE;\n"
                 "bra.uni                   LAB_WAIT;\n"
                 "DONE:\n"
                 "}\n" ::"r"(mbar_ptr),
                 "r"(kPhaseBit));
}
__device__ static __forceinline__ void arrive(uint64_t *bar) {
    uint32_t mbar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;\n" : : "r"(mbar_ptr), "r"(1) : "memory");
}

template <int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ void wgmma128(float d[8][8], bf16 *sA, bf16 *sB) {
    uint64_t desc_a = make_smem_desc(&sA[0]);
    uint64_t desc_b = make_smem_desc(&sB[0]);
    asm volatile("{\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,   %1,   %2,   %3,   %4,   %5,   %6,   %7,   "
                 " %8,   %9,   %10,  %11,  %12,  %13,  %14,  %15,  "
                 " %16,  %17,  %18,  %19,  %20,  %21,  %22,  %23,  "
                 " %24,  %25,  %26,  %27,  %28,  %29,  %30,  %31,  "
                 " %32,  %33,  %34,  %35,  %36,  %37,  %38,  %39,  "
                 " %40,  %41,  %42,  %43,  %44,  %45,  %46,  %47,  "
                 " %48,  %49,  %50,  %51,  %52,  %53,  %54,  %55,  "
                 " %56,  %57,  %58,  %59,  %60,  %61,  %62,  %63},"
                 " %64,"
                 " %65,"
                 " %66, %67,  %68,  %69,  %70;\n"
                 "}\n"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[0][4]), "+f"(d[0][5]),
                   "+f"(d[0][6]), "+f"(d[0][7]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
                   "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[1][6]), "+f"(d[1][7]), "+f"(d[2][0]), "+f"(d[2][1]),
                   "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[2][4]), "+f"(d[2][5]), "+f"(d[2][6]), "+f"(d[2][7]),
                   "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[3][4]), "+f"(d[3][5]),
                   "+f"(d[3][6]), "+f"(d[3][7]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
                   "+f"(d[4][4]), "+f"(d[4][5]), "+f"(d[4][6]), "+f"(d[4][7]), "+f"(d[5][0]), "+f"(d[5][1]),
                   "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[5][4]), "+f"(d[5][5]), "+f"(d[5][6]), "+f"(d[5][7]),
                   "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[6][4]), "+f"(d[6][5]),
                   "+f"(d[6][6]), "+f"(d[6][7]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
                   "+f"(d[7][4]), "+f"(d[7][5]), "+f"(d[7][6]), "+f"(d[7][7])
                 : "l"(desc_a), "l"(desc_b), "n"(int32_t(ScaleD)), "n"(int32_t(ScaleA)), "n"(int32_t(ScaleB)),
                   "n"(int32_t(TransA)), "n"(int32_t(TransB)));
}

template <int BM, int BN, int BK, int QSIZE> struct SMem {
    alignas(128) bf16 A[BM * BK * QSIZE];
    alignas(128) bf16 B[BK * BN * QSIZE];
    alignas(8) uint64_t full[QSIZE], empty[QSIZE];
};

template <int BM, int BN, int BK, int QSIZE>
__global__ void __launch_bounds__(384) gemm(int M, int N, int K, float *C, const __grid_constant__ CUtensorMap tensorMapA,
                                            const __grid_constant__ CUtensorMap tensorMapB) {
    constexpr int NUM_CONSUMERS = 2, WGMMA_M = 64, WGMMA_K = 16;
    constexpr int B_WG_M = BM / NUM_CONSUMERS;
    extern __shared__ __align__(1024) uint8_t smem[];
    SMem<BM, BN, BK, QSIZE> &s = *reinterpret_cast<SMem<BM, BN, BK, QSIZE> *>(smem);
    bf16 *sA = s.A, *sB = s.B;
    uint64_t *full = s.full, *empty = s.empty;

    const int num_blocks_k = K / BK;
    int num_block_n = blockIdx.x % (N / BN), num_block_m = blockIdx.x / (N / BN);
    int wg_idx = threadIdx.x / 128, tid = threadIdx.x % 128;

    if (threadIdx.x == 0) {
        for (int i = 0; i < QSIZE; ++i) {
            init_barrier(&full[i], 1);
            init_barrier(&empty[i], NUM_CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (wg_idx == 0) {
        warpgroup_reg_dealloc<24>();
        if (tid == 0) {
            asm volatile("prefetch.tensormap [%0];" ::"l"(&tensorMapA) : "memory");
            int p = 0, qidx = 0;
            for (int block_k_iter = 0; block_k_iter < num_blocks_k; ++block_k_iter, ++qidx) {
                if (qidx == QSIZE) {
                    qidx = 0;
                    p ^= 1;
                }
                wait(&empty[qidx], p ^ 1);
                expect_bytes(&full[qidx], (BK * BN + BK * BM) * sizeof(bf16));
                load_async(&sA[qidx * BK * BM], &tensorMapA, &full[qidx], block_k_iter * BK, num_block_m * BM);
                load_async(&sB[qidx * BK * BN], &tensorMapB, &full[qidx], block_k_iter * BK, num_block_n * BN);
            }
        }
    } else {
        warpgroup_reg_alloc<240>();
        --wg_idx;
        float d[B_WG_M / WGMMA_M][8][8];
        memset(d, 0, sizeof(d));
        int p = 0, qidx = 0;
        for (int block_k_iter = 0; block_k_iter < num_blocks_k; ++block_k_iter, ++qidx) {
            if (qidx == QSIZE) {
                qidx = 0;
                p ^= 1;
            }
            wait(&full[qidx], p);
            warpgroup_arrive();
#pragma unroll
            for (int m_it = 0; m_it < B_WG_M / WGMMA_M; ++m_it) {
                bf16 *wgmma_sA = sA + qidx * BK * BM + BK * (m_it + wg_idx * B_WG_M / WGMMA_M) * WGMMA_M;
#pragma unroll
                for (int k_it = 0; k_it < BK / WGMMA_K; ++k_it)
                    wgmma128<1, 1, 1, 0, 0>(d[m_it], &wgmma_sA[k_it * WGMMA_K], &sB[qidx * BK * BN + k_it * WGMMA_K]);
            }
            warpgroup_commit_batch();
            warpgroup_wait<0>();
            if (tid == 0) arrive(&empty[qidx]);
        }

        int lane = tid % 32, warp = tid / 32, row = warp * 16 + lane / 4;
        float *block_C = C + num_block_m * BM * N + num_block_n * BN;
        for (int m_it = 0; m_it < B_WG_M / WGMMA_M; ++m_it) {
            int yo = m_it * WGMMA_M + wg_idx * B_WG_M;
            for (int w = 0; w < BN / 16; ++w) {
                int col = 16 * w + 2 * (tid % 4);
#define IDX(i, j) ((i + yo) * N + (j))
                block_C[IDX(row, col)] = d[m_it][w][0];
                block_C[IDX(row, col + 1)] = d[m_it][w][1];
                block_C[IDX(row + 8, col)] = d[m_it][w][2];
                block_C[IDX(row + 8, col + 1)] = d[m_it][w][3];
                block_C[IDX(row, col + 8)] = d[m_it][w][4];
                block_C[IDX(row, col + 9)] = d[m_it][w][5];
                block_C[IDX(row + 8, col + 8)] = d[m_it][w][6];
                block_C[IDX(row + 8, col + 9)] = d[m_it][w][7];
#undef IDX
            }
        }
    }
}

template <int BlockMajorSize, int BlockMinorSize>
static CUtensorMap create_tensor_map(bf16 *gmem_ptr, int global_height, int global_width) {
    CUtensorMap tma_map;
    uint64_t gmem_prob_shape[2] = {(uint64_t)global_width, (uint64_t)global_height};
    uint64_t gmem_prob_stride[1] = {sizeof(bf16) * global_width};
    uint32_t smem_box_shape[2] = {uint32_t(BlockMinorSize), uint32_t(BlockMajorSize)};
    uint32_t smem_box_stride[2] = {1, 1};
    CUresult result = cuTensorMapEncodeTiled(
        &tma_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, gmem_ptr, gmem_prob_shape, gmem_prob_stride, smem_box_shape,
        smem_box_stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    assert(result == CUDA_SUCCESS);
    return tma_map;
}

void run_gemm(int M, int N, int K, bf16 *A, bf16 *B, float *C) {
    constexpr int BM = 128, BN = 128, BK = 64, QSIZE = 4;
    CUtensorMap a = create_tensor_map<BM, BK>(A, M, K), b = create_tensor_map<BN, BK>(B, N, K);
    auto *kernel = gemm<BM, BN, BK, QSIZE>;
    size_t sMemSize = sizeof(SMem<BM, BN, BK, QSIZE>);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sMemSize);
    kernel<<<(M / BM) * (N / BN), 384, sMemSize>>>(M, N, K, C, a, b);
}
