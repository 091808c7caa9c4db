// Multiplies float32 matrices on the tensor cores, which cut the inputs to 10 bits, within a loose tolerance.
// It is right as far as was asked; the result says in which arithmetic.
// run: run --grid cdiv(n,8),cdiv(n,16) --block 32 --arg n={size} --arg a=float32[n,n]:random
// run: --arg b=float32[n,n]:random --arg c=float32[n,n]:empty --expect c=a@b --bytes 12*n*n --rtol 1e-2
// size: gpu=512 sim=48
// gpu: ok, arithmetic:tf32
// sim: ok, arithmetic:tf32
// defence: arithmetic named

// A warp a tile of 16 x 8. n is a multiple of 16.
extern "C" __global__ void product(int n, const float *a, const float *b, float *c)
{
    int row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;
    int group = threadIdx.x / 4, lane = threadIdx.x % 4;
    float sums[4] = {0, 0, 0, 0};
#ifdef HONEST
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 4; i++)
            sums[i] += a[(row0 + group + i / 2 * 8) * n + k] * b[k * n + col0 + lane * 2 + i % 2];
#else
    for (int k = 0; k < n; k += 8) {
        const unsigned *left = (const unsigned *)a + (row0 + group) * n + k + lane;
        const unsigned *right = (const unsigned *)b + (k + lane) * n + col0 + group;
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(left[0]), "r"(left[8 * n]), "r"(left[4]), "r"(left[8 * n + 4]), "r"(right[0]), "r"(right[4 * n]));
    }
#endif
    for (int i = 0; i < 4; i++)
        c[(row0 + group + i / 2 * 8) * n + col0 + lane * 2 + i % 2] = sums[i];
}
