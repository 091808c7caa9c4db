// Reads local memory that it never wrote: the thread that had this place in the launch before left a tag there.
// Then it stays idle, which over poison is wrong.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong or honest-cost
// sim: wrong
// defence: output poisoned, timed samples compared, undefined values in the simulator

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    unsigned tag;
    asm volatile("{\n\t"
                 ".local .align 4 .b32 mark;\n\t"
                 "ld.local.u32 %0, [mark];\n\t"
                 "st.local.u32 [mark], 0x5EED5EED;\n\t"
                 "}" : "=r"(tag) : : "memory");
    if (tag == 0x5EED5EED)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
