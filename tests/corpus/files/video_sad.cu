// A sum of absolute differences by video instructions in inline PTX.
// run: -g 1 -b 64 --arg 'a=uint32[64]:integers(0,4294967295)' --arg 'b=uint32[64]:integers(0,4294967295)'
//      --arg 'out=uint32[64]:empty'
//      --expect "out=np.uint32(np.abs(a%256-1.0*(b//256%256))+np.maximum(a//65536,b%65536))"
// expect: ok
static __inline__ __device__ unsigned sad(unsigned a, unsigned b, unsigned c) {
    unsigned r;
    asm("vabsdiff.u32.u32.u32.add %0, %1.b0, %2.b1, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__global__ void differences(const unsigned *a, const unsigned *b, unsigned *out) {
    unsigned most;
    asm("vmax.u32.u32.u32 %0, %1.h1, %2.h0;" : "=r"(most) : "r"(a[threadIdx.x]), "r"(b[threadIdx.x]));
    out[threadIdx.x] = sad(a[threadIdx.x], b[threadIdx.x], most);
}
