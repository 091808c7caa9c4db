// Wrong: a bulk copy takes away what threads have just stored, with no fence.proxy.async between.
// LAUNCH: grid=2 block=64 args=out:float32[128]
extern "C" __global__ void bulk_store_without_fence(float *out)
{
    __shared__ __align__(128) float tile[64];
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned from = __cvta_generic_to_shared(tile);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" // HAZARD: missing-fence
                     :: "l"(out + 64 * blockIdx.x), "r"(from), "r"(256) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
