// Half precision in inline assembly, under no name that the source shows; within a tolerance that was asked for.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=x*x+x' --rtol 2e-3 --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: ok, arithmetic:float16, warning:arithmetic
// sim: ok, arithmetic:float16, warning:arithmetic
// defence: arithmetic named

extern "C" __global__ void squares(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] = x[i] * x[i] + x[i];
#else
    asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; fma.rn.f16 h, h, h, h; cvt.f32.f16 %0, h; }" : "=f"(y[i]) : "f"(x[i]));
#endif
}
