// Kernels of many kinds, to compare what their machine code counts with a card: x has 4096 numbers, y and f have 8192.
// Each is launched with 4 blocks of 256 threads; n is 4096.
#include <cuda_fp16.h>

#define KERNEL(NAME) extern "C" __global__ void NAME(const int *x, int *y, float *f, int n)
#define INDEX const int i = blockIdx.x * blockDim.x + threadIdx.x

// Loops of unlike lengths, one in the other.
KERNEL(k_nested) {
    INDEX;
    int s = 0;
    for (int a = 0; a < (x[i] & 7); a++)
        for (int b = a; b < (x[i + a] & 15); b++)
            s += x[(i + b * 7) % n] ^ a;
    y[i] = s;
}

// A search with an early end.
KERNEL(k_find) {
    INDEX;
    int found = -1;
    for (int k = 0; k < 64; k++)
        if (x[(i * 3 + k) % n] % 23 == 5) {
            found = k;
            break;
        }
    y[i] = found;
}

// Cases that fall through.
KERNEL(k_switch) {
    INDEX;
    int v = x[i], s = v;
    switch (v % 7) {
    case 0: s += x[(v + 1) % n];
    case 1: s ^= 0x55; break;
    case 2: s = s / 3; break;
    case 3: s *= x[(v + 2) % n];
    case 4: s -= 9; break;
    case 5: s = __popc(s); break;
    default: s = __clz(s | 1);
    }
    y[i] = s;
}

// The greatest common divisor, whose steps hang on the numbers.
KERNEL(k_gcd) {
    INDEX;
    unsigned a = x[i] + 1, b = x[(i + 17) % n] + 1;
    while (b) {
        unsigned t = a % b;
        a = b;
        b = t;
    }
    y[i] = a;
}

// Collatz, with another loop where the number is odd.
KERNEL(k_collatz) {
    INDEX;
    unsigned v = (x[i] & 255) + 1, steps = 0;
    while (v != 1 && steps < 300) {
        if (v & 1)
            v = 3 * v + 1;
        else
            while (!(v & 1))
                v >>= 1;
        steps++;
    }
    y[i] = steps;
}

// A binary search by each lane.
KERNEL(k_bisect) {
    INDEX;
    int low = 0, high = n - 1, wanted = x[i];
    while (low < high) {
        int middle = (low + high) / 2;
        if (middle * 2 < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    y[i] = low;
}

// A sum over the block in shared memory.
KERNEL(k_sum) {
    INDEX;
    __shared__ float part[256];
    part[threadIdx.x] = x[i] * 0.5f;
    __syncthreads();
    for (int step = 128; step; step >>= 1) {
        if (threadIdx.x < step)
            part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (!threadIdx.x)
        f[blockIdx.x] = part[0];
}

// Conflicts of banks by a stride that hangs on data.
KERNEL(k_banks) {
    INDEX;
    __shared__ int tile[1024];
    for (int k = threadIdx.x; k < 1024; k += 256)
        tile[k] = x[(k * 5 + blockIdx.x) % n];
    __syncthreads();
    int s = 0;
    for (int k = 0; k < 8; k++)
        s += tile[(threadIdx.x * (k + 1) + s) & 1023];
    y[i] = s;
}

// Wide loads and stores.
KERNEL(k_wide) {
    INDEX;
    float4 v = reinterpret_cast<const float4 *>(f)[i];
    int4 w = reinterpret_cast<const int4 *>(x)[i & 1023];
    v.x += w.x, v.y -= w.y, v.z *= w.z, v.w += v.x;
    reinterpret_cast<float4 *>(f)[i] = v;
    reinterpret_cast<short *>(y)[i * 3] = short(w.x);
}

// Shuffles within warps, and a vote.
KERNEL(k_shuffle) {
    INDEX;
    int v = x[i];
    for (int step = 16; step; step >>= 1)
        v += __shfl_xor_sync(~0u, v, step);
    unsigned odd = __ballot_sync(~0u, x[i] & 1);
    int before = __popc(odd & ((1u << (threadIdx.x & 31)) - 1));
    if (x[i] & 1)
        y[i - (threadIdx.x & 31) + before] = v;
    if (__any_sync(~0u, x[i] == 77))
        f[i] = v;
}

// Integer atomics, of which nobody asks what they return.
KERNEL(k_histogram) {
    INDEX;
    __shared__ int bins[64];
    if (threadIdx.x < 64)
        bins[threadIdx.x] = 0;
    __syncthreads();
    for (int k = i; k < n; k += 1024)
        atomicAdd(&bins[x[k] & 63], 1);
    __syncthreads();
    if (threadIdx.x < 64)
        atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}

// The greatest value of the grid, by those only that are great.
KERNEL(k_greatest) {
    INDEX;
    int v = x[i] * 7 % 1001;
    if (v > 500)
        atomicMax(&y[v & 3], v);
    if (v % 9 == 4)
        atomicOr(&y[64 + (i & 31)], 1 << (v & 31));
}

// Divisions, roots and exponentials.
KERNEL(k_special) {
    INDEX;
    float a = x[i] * 0.37f - 300.f, b = x[(i + 5) % n] + 0.25f;
    f[i] = a / b + sqrtf(fabsf(a)) + expf(a * 0.001f) + logf(b) + __sinf(b);
    y[i] = int(a * b) % 13;
}

// float64.
KERNEL(k_double) {
    INDEX;
    double a = x[i] * 0.1, b = x[(i + 3) % n] - 1000.0;
    for (int k = 0; k < (x[i] & 3); k++)
        a = a * b / (fabs(a) + 1.0) + 0.5;
    f[i] = float(a);
    y[i] = a > b ? int(a) : int(b);
}

// 16-bit floats.
KERNEL(k_half) {
    INDEX;
    __half2 a = __floats2half2_rn(x[i] * 0.01f, x[(i + 1) % n] * 0.02f), b = __half2half2(__float2half(0.75f));
    for (int k = 0; k < 4; k++)
        a = __hfma2(a, b, __hadd2(a, b));
    f[i] = __low2float(a) + __high2float(a);
}

// An array of each lane in local memory, indexed by data.
KERNEL(k_local) {
    INDEX;
    int own[24];
    for (int k = 0; k < 24; k++)
        own[k] = x[(i + k * 11) % n] & 15;
    int at = x[i] % 24;
    for (int k = 0; k < (x[i] & 7) + 4; k++) {
        own[(at * 5 + k) % 24] += at;
        at = own[(at + k) % 24] % 24;
    }
    y[i] = at + own[at];
}

// Numbers of 64 bits.
KERNEL(k_long) {
    INDEX;
    unsigned long long v = (unsigned long long)x[i] * 0x9E3779B97F4A7C15ull + i, s = 0;
    for (int k = 0; k < (x[i] & 3) + 2; k++) {
        v ^= v >> 29;
        v *= 0xBF58476D1CE4E5B9ull;
        s += v % 1000003u;
        if (v >> 63)
            s = s << 3 | k;
    }
    y[i] = int(s ^ s >> 32);
}

// Lanes that go different ways, and in one of them part again.
KERNEL(k_tree) {
    INDEX;
    int v = x[i], s = 0;
    if (v & 1) {
        if (v & 2) {
            for (int k = 0; k < (v & 12); k++)
                s += x[(v + k) % n];
        } else if (v & 4)
            s = x[(v * 3) % n];
        else
            s = v / 7;
        s ^= 3;
    } else {
        if (v & 8)
            s = x[(v + 9) % n] % 11;
        s += 5;
    }
    y[i] = s;
}

// Words of texts of unlike lengths, skipped and compared.
KERNEL(k_words) {
    INDEX;
    int at = i, words = 0, longest = 0;
    while (at < i + 40) {
        while (at < i + 40 && x[at % n] % 3 == 0)
            at++;
        int start = at;
        while (at < i + 40 && x[at % n] % 3 != 0)
            at++;
        if (at > start) {
            words++;
            if (at - start > longest)
                longest = at - start;
        }
    }
    y[i] = words * 100 + longest;
}

// A stencil with borders.
KERNEL(k_stencil) {
    INDEX;
    __shared__ float tile[256 + 8];
    int t = threadIdx.x + 4;
    tile[t] = x[i];
    if (threadIdx.x < 4) {
        tile[t - 4] = i >= 4 ? x[i - 4] : 0;
        tile[t + 256] = i + 256 < n ? x[i + 256] : 0;
    }
    __syncthreads();
    float s = 0;
    for (int k = -4; k <= 4; k++)
        s += tile[t + k] * (5 - abs(k));
    f[i] = s;
}

// Insertion sort of eight numbers a lane, in shared memory.
KERNEL(k_sort) {
    INDEX;
    __shared__ int own[256 * 9];
    int *mine = own + threadIdx.x * 9;
    for (int k = 0; k < 8; k++) {
        int v = x[(i * 8 + k) % n], at = k;
        while (at > 0 && mine[at - 1] > v) {
            mine[at] = mine[at - 1];
            at--;
        }
        mine[at] = v;
    }
    y[i] = mine[3];
}

// Lanes that end early, in several places.
KERNEL(k_ends) {
    INDEX;
    int v = x[i];
    if (v % 5 == 0)
        return;
    for (int k = 0; k < (v & 15); k++) {
        v = x[(v + k * 3) % n];
        if (v % 31 == 7) {
            y[i] = -k;
            return;
        }
    }
    if (v & 1)
        v += x[(v + 1) % n];
    y[i] = v;
}

// Loops that continue and break.
KERNEL(k_continue) {
    INDEX;
    int s = 0;
    for (int k = 0; k < 20; k++) {
        int v = x[(i + k * 5) % n];
        if (v % 3 == 0)
            continue;
        s += v;
        if (s % 17 == 3)
            break;
        if (v & 4)
            s -= k;
    }
    y[i] = s;
}

// Polynomials whose degree hangs on data, by Horner's rule.
KERNEL(k_horner) {
    INDEX;
    float at = (x[i] & 255) * 0.01f, s = 0;
    for (int k = (x[i] >> 4) & 31; k >= 0; k--)
        s = s * at + (x[(i + k) % n] & 15);
    f[i] = s;
}
