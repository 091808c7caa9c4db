// Keeps the odd values of one block in order: ballot and popcount within a warp, shared offsets between warps.
__global__ void compact(const int *in, int *out, int *count, int n) {
    __shared__ int offset[32];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    bool keep = t < n && in[t] % 2;
    unsigned votes = __ballot_sync(0xffffffffu, keep);
    if (lane == 0) offset[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < warp; w++) before += offset[w];
    if (keep) out[before] = in[t];
    if (t == blockDim.x - 1) *count = before + keep;
}
