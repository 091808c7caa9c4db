// PTX in the middle of C++: the lane, a fused multiply-add, predicates.
// run: -g 1 -b 64 --arg 'x=float32[64]:random' --arg 'lane=uint32[64]:empty' --expect 'x=x0*2+1' --expect 'lane=np.uint32(np.arange(64)%32)'
// expect: ok
__device__ __forceinline__ unsigned lane_id() {
    unsigned id;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(id));
    return id;
}
__global__ void assembly(float *x, unsigned *lane) {
    float v = x[threadIdx.x], r;
    asm("{\n\t.reg .f32 t;\n\tmul.f32 t, %1, 0f40000000;\n\tadd.f32 %0, t, 0f3F800000;\n\t}" : "=f"(r) : "f"(v));
    x[threadIdx.x] = r;
    lane[threadIdx.x] = lane_id();
}
