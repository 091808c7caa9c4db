// Kernels of other kinds, whose counts were written down before a card was asked. Arguments as in kernels.cu.
#define KERNEL(NAME) extern "C" __global__ void NAME(const int *x, int *y, float *f, int n)
#define INDEX const int i = blockIdx.x * blockDim.x + threadIdx.x

__constant__ unsigned nibbles[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

// The distance of two words of unlike lengths.
KERNEL(u_edit) {
    INDEX;
    int row[9], la = (x[i] & 7) + 1, lb = (x[i + 1] & 7) + 1;
    for (int b = 0; b <= 8; b++)
        row[b] = b;
    for (int a = 1; a <= la; a++) {
        int before = row[0];
        row[0] = a;
        for (int b = 1; b <= 8; b++) {
            if (b > lb)
                break;
            int same = before + (x[(i + a) % n] % 3 != x[(i + 5 * b) % n] % 3);
            before = row[b];
            row[b] = min(min(row[b], row[b - 1]) + 1, same);
        }
    }
    y[i] = row[lb];
}

// Queens on a board of six, from a first row each.
KERNEL(u_queens) {
    INDEX;
    unsigned cols[7], left[7], right[7], open[7];
    int depth = 1, found = 0;
    cols[1] = 1u << (x[i] % 6), left[1] = cols[1] << 1, right[1] = cols[1] >> 1;
    open[1] = ~(cols[1] | left[1] | right[1]) & 63;
    while (depth > 0) {
        if (depth == 6) {
            found++;
            depth--;
            continue;
        }
        unsigned bit = open[depth] & -open[depth];
        if (!bit) {
            depth--;
            continue;
        }
        open[depth] ^= bit;
        cols[depth + 1] = cols[depth] | bit;
        left[depth + 1] = (left[depth] | bit) << 1, right[depth + 1] = (right[depth] | bit) >> 1;
        depth++;
        open[depth] = ~(cols[depth] | left[depth] | right[depth]) & 63;
    }
    y[i] = found;
}

// Codes of one to four bits each.
KERNEL(u_prefix_code) {
    INDEX;
    unsigned bits = x[i] * 2654435761u, sum = 0;
    int left = 32;
    while (left > 3) {
        if (!(bits & 1))
            sum = sum * 3 + 1, bits >>= 1, left -= 1;
        else if (!(bits & 2))
            sum = sum * 5 + x[(sum & 1023) + left], bits >>= 2, left -= 2;
        else if (!(bits & 4))
            sum ^= left, bits >>= 3, left -= 3;
        else
            sum += bits >> 28, bits >>= 4, left -= 4;
    }
    y[i] = sum;
}

// Steps of a machine over bytes, which may refuse one.
KERNEL(u_bytes_machine) {
    INDEX;
    int state = 0, at = i;
    const unsigned char *text = (const unsigned char *)x;
    for (int k = 0; k < 24; k++) {
        unsigned c = text[(i * 13 + k) % (4 * n)];
        if (state == 0)
            state = c < 128 ? 0 : c < 192 ? 4 : c < 224 ? 1 : 2;
        else if (state < 4 && c >= 64)
            state--;
        else {
            at = -k;
            break;
        }
    }
    y[i] = at + state;
}

// An own stack of ranges, of which the smaller goes first.
KERNEL(u_quick) {
    INDEX;
    int a[12], stack[12], top = 0;
    for (int k = 0; k < 12; k++)
        a[k] = x[(i * 5 + k * 3) % n];
    stack[top++] = 0, stack[top++] = 11;
    while (top) {
        int hi = stack[--top], lo = stack[--top];
        if (lo >= hi)
            continue;
        int pivot = a[hi], m = lo;
        for (int k = lo; k < hi; k++)
            if (a[k] < pivot) {
                int t = a[k];
                a[k] = a[m], a[m++] = t;
            }
        a[hi] = a[m], a[m] = pivot;
        if (top < 8) {
            stack[top++] = lo, stack[top++] = m - 1;
            stack[top++] = m + 1, stack[top++] = hi;
        }
    }
    y[i] = a[3] + a[7] * 3;
}

// To the root of a tree that lies in an array.
KERNEL(u_roots) {
    INDEX;
    int at = i, steps = 0;
    while (at > 0 && steps < 40) {
        int up = x[at] % (at + 1);
        if (up == at)
            break;
        at = up, steps++;
    }
    y[i] = at * 64 + steps;
}

// Open addressing in shared memory, that each thread fills at its own place.
KERNEL(u_probe) {
    INDEX;
    __shared__ int table[512];
    table[threadIdx.x] = x[i] | 1, table[threadIdx.x + 256] = threadIdx.x % 3 ? 0 : x[i + 1] | 1;
    __syncthreads();
    unsigned key = x[(i * 11) % n] | 1, at = key * 40503u % 512;
    int tries = 0;
    while (table[at] != 0 && table[at] != (int)key && tries < 20)
        at = (at + 1) % 512, tries++;
    y[i] = table[at] == (int)key ? tries : -tries;
}

// Spheres along a ray, of which the nearest counts.
KERNEL(u_ray) {
    INDEX;
    float dx = (x[i] % 17 - 8) * 0.1f, dy = (x[i + 1] % 13 - 6) * 0.1f, near = 1e9f;
    int hit = -1;
    for (int k = 0; k < 12; k++) {
        float cx = (x[k * 3] % 9 - 4) * 0.5f, cy = (x[k * 3 + 1] % 9 - 4) * 0.5f, cz = 3 + k;
        float b = dx * cx + dy * cy + cz, c = cx * cx + cy * cy + cz * cz - 1;
        float d = b * b - (dx * dx + dy * dy + 1) * c;
        if (d < 0)
            continue;
        float t = (b - sqrtf(d)) / (dx * dx + dy * dy + 1);
        if (t > 0 && t < near)
            near = t, hit = k;
    }
    y[i] = hit;
    if (hit >= 0)
        f[i] = near;
}

// The set of points that stay, in double.
KERNEL(u_escape) {
    INDEX;
    double cr = (x[i] % 97) / 40.0 - 2, ci = (x[i + 2] % 89) / 44.0 - 1, r = 0, j = 0;
    int k = 0;
    for (; k < 50 && r * r + j * j < 4; k++) {
        double t = r * r - j * j + cr;
        j = 2 * r * j + ci, r = t;
    }
    y[i] = k;
}

// A checksum by a table of constants, over as many bytes as a number says.
KERNEL(u_crc) {
    INDEX;
    unsigned c = ~0u;
    const unsigned char *text = (const unsigned char *)(x + i);
    for (int k = 0; k < (x[i] & 31); k++) {
        c ^= text[k];
        c = nibbles[c & 15] ^ c >> 4;
        c = nibbles[c & 15] ^ c >> 4;
    }
    y[i] = ~c;
}

// The longest match behind, as a packer seeks it.
KERNEL(u_match) {
    INDEX;
    int best = 0, where = 0;
    for (int back = 1; back <= 16 && back <= i; back++) {
        int len = 0;
        while (len < 12 && (x[i + len] & 3) == (x[i + len - back] & 3))
            len++;
        if (len > best)
            best = len, where = back;
        if (best == 12)
            break;
    }
    y[i] = best << 8 | where;
}

// Runs of a warp: their beginnings and lengths.
KERNEL(u_runs) {
    INDEX;
    int v = x[i] & 1, lane = threadIdx.x & 31, before = __shfl_up_sync(~0u, v, 1);
    unsigned heads = __ballot_sync(~0u, lane == 0 || v != before);
    if (heads >> lane & 1) {
        unsigned behind = lane == 31 ? 0 : heads >> (lane + 1);
        int length = behind ? __ffs(behind) : 32 - lane;
        y[blockIdx.x * 256 + (threadIdx.x & ~31) + __popc(heads & ((1u << lane) - 1))] = v << 8 | length;
        for (int k = 0; k < length; k++)
            f[i + k] = k;
    }
}

// A pattern with its table of failures.
KERNEL(u_pattern) {
    INDEX;
    const int pattern[6] = {0, 1, 0, 0, 1, 0}, fail[7] = {0, 0, 0, 1, 1, 2, 3};
    int state = 0, found = 0;
    for (int k = 0; k < 40; k++) {
        int c = x[(i * 3 + k) % n] & 1;
        while (state && (state == 6 || pattern[state] != c))
            state = fail[state];
        if (pattern[state] == c)
            state++;
        found += state == 6;
    }
    y[i] = found;
}

// A tree in an array, walked with a stack, and pruned.
KERNEL(u_walk) {
    INDEX;
    int stack[16], top = 0, sum = 0;
    stack[top++] = 1;
    while (top) {
        int node = stack[--top];
        int v = x[(node * 37 + i) % n];
        if (v % 5 == 0)
            continue;
        sum += v & 255;
        if (node < 64) {
            stack[top++] = 2 * node + 1;
            if (v & 1)
                stack[top++] = 2 * node;
        }
    }
    y[i] = sum;
}

// Cells that live by their neighbours, with a rim in shared memory.
KERNEL(u_life) {
    __shared__ unsigned char cell[18][18];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16, base = blockIdx.x * 256;
    cell[ty + 1][tx + 1] = x[base + threadIdx.x] & 1;
    if (ty == 0)
        cell[0][tx + 1] = 0, cell[17][tx + 1] = x[base + tx] >> 1 & 1;
    if (tx == 0)
        cell[ty + 1][0] = x[base + ty] >> 2 & 1, cell[ty + 1][17] = 0;
    if (threadIdx.x < 4)
        cell[threadIdx.x & 1 ? 17 : 0][threadIdx.x & 2 ? 17 : 0] = 0;
    __syncthreads();
    for (int step = 0; step < 3; step++) {
        int near = 0;
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                near += a == 1 && b == 1 ? 0 : cell[ty + a][tx + b];
        int now = near == 3 || (near == 2 && cell[ty + 1][tx + 1]);
        __syncthreads();
        cell[ty + 1][tx + 1] = now;
        __syncthreads();
    }
    y[base + threadIdx.x] = cell[ty + 1][tx + 1];
}

// A scan of maxima, doubling the step.
KERNEL(u_maxima) {
    INDEX;
    __shared__ int s[2][256];
    int from = 0;
    s[0][threadIdx.x] = x[i];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        int v = s[from][threadIdx.x];
        if ((int)threadIdx.x >= step)
            v = max(v, s[from][threadIdx.x - step]);
        s[1 - from][threadIdx.x] = v;
        from = 1 - from;
        __syncthreads();
    }
    y[i] = s[from][threadIdx.x];
}

// Newton's steps until nothing changes.
KERNEL(u_newton) {
    INDEX;
    float a = x[i] + 0.5f, r = a;
    int k = 0;
    for (; k < 30; k++) {
        float next = 0.5f * (r + a / r);
        if (fabsf(next - r) < 1e-4f * r)
            break;
        r = next;
    }
    y[i] = k;
    f[i] = r;
}

// Powers modulo a number, by squares.
KERNEL(u_power) {
    INDEX;
    unsigned long long base = x[i] + 2, m = 2u * x[(i + 3) % n] + 3, r = 1;
    for (unsigned e = x[(i + 9) % n]; e; e >>= 1) {
        if (e & 1)
            r = r * base % m;
        base = base * base % m;
    }
    y[i] = (int)r;
}

// Factors by trial.
KERNEL(u_factors) {
    INDEX;
    int v = x[i] + 2, count = 0;
    for (int p = 2; p * p <= v; p += 1 + (p & 1))
        while (v % p == 0)
            v /= p, count++;
    y[i] = v * 16 + count + (v > 1);
}

// Words compared from the front, four bytes at a time, then by bytes.
KERNEL(u_compare) {
    INDEX;
    const uchar4 *a = (const uchar4 *)(x + i), *b = (const uchar4 *)(x + (i * 7) % 1000);
    int result = 0;
    for (int k = 0; k < 6 && !result; k++) {
        uchar4 p = a[k], q = b[k];
        if (p.x != q.x && (p.x ^ q.x) > 8)
            result = p.x < q.x ? -1 : 1;
        else if (p.y != q.y)
            result = p.y < q.y ? -2 : 2;
    }
    y[i] = result;
}

// A heap from which the least is taken.
KERNEL(u_heap) {
    INDEX;
    int h[16], size = 15, sum = 0;
    for (int k = 1; k < 16; k++)
        h[k] = x[(i + k * 29) % n];
    for (int k = 7; k >= 1; k--) {
        int at = k;
        while (2 * at <= size) {
            int c = 2 * at;
            if (c < size && h[c + 1] < h[c])
                c++;
            if (h[at] <= h[c])
                break;
            int t = h[at];
            h[at] = h[c], h[c] = t, at = c;
        }
    }
    for (int k = 0; k < 4; k++) {
        sum = sum * 3 + h[1];
        h[1] = h[size--];
        int at = 1;
        while (2 * at <= size) {
            int c = 2 * at + (2 * at < size && h[2 * at + 1] < h[2 * at]);
            if (h[at] <= h[c])
                break;
            int t = h[at];
            h[at] = h[c], h[c] = t, at = c;
        }
    }
    y[i] = sum;
}

// A warp goes on while any lane has work.
KERNEL(u_any) {
    INDEX;
    int left = x[i] & 15, turns = 0;
    while (__any_sync(~0u, left > 0)) {
        if (left > 0) {
            left -= 1 + (x[(i + left) % n] & 1);
            if (left == 3)
                left = 0;
        }
        turns++;
    }
    y[i] = turns;
}

// Rows of unlike lengths, added up by a quarter of a warp each.
KERNEL(u_rows) {
    INDEX;
    int row = i / 8, lane = threadIdx.x & 7, first = row * 9, last = first + (x[row] & 31);
    float s = 0;
    for (int k = first + lane; k < last; k += 8)
        s += f[k] * (x[k] & 3);
    for (int step = 4; step; step /= 2)
        s += __shfl_down_sync(~0u, s, step, 8);
    if (lane == 0)
        f[4096 + row] = s;
    y[i] = last;
}

// Elimination in a matrix of four, whose rows change places.
KERNEL(u_pivot) {
    INDEX;
    float m[4][4], det = 1;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            m[r][c] = x[(i * 16 + r * 4 + c) % n] % 9 - 4;
    for (int c = 0; c < 4; c++) {
        int best = c;
        for (int r = c + 1; r < 4; r++)
            if (fabsf(m[r][c]) > fabsf(m[best][c]))
                best = r;
        if (m[best][c] == 0) {
            det = 0;
            break;
        }
        if (best != c) {
            det = -det;
            for (int k = 0; k < 4; k++) {
                float t = m[c][k];
                m[c][k] = m[best][k], m[best][k] = t;
            }
        }
        det *= m[c][c];
        for (int r = c + 1; r < 4; r++)
            for (int k = c + 1; k < 4; k++)
                m[r][k] -= m[c][k] * (m[r][c] / m[c][c]);
    }
    f[i] = det;
}

// Some threads return early; the block counts what is left.
KERNEL(u_count) {
    INDEX;
    int v = x[i], c = __syncthreads_count(v % 3 == 0);
    if (v % 11 == 4)
        return;
    for (int k = 0; k < (v & 7); k++) {
        if (k + c % 7 == 5) {
            y[i] = k;
            return;
        }
        v = v * 5 + x[(i + k) % n];
    }
    y[i] = v + c;
}

// Butterflies in shared memory.
KERNEL(u_butterfly) {
    __shared__ float re[256], im[256];
    int t = threadIdx.x, base = blockIdx.x * 256;
    re[__brev(t) >> 24] = x[base + t] & 15, im[t] = 0;
    __syncthreads();
    for (int half = 1; half < 256; half *= 2) {
        if (t < 128) {
            int k = t % half, at = t / half * 2 * half + k;
            float a = -3.14159265f * k / half, c = __cosf(a), s = __sinf(a);
            float p = re[at + half] * c - im[at + half] * s, q = re[at + half] * s + im[at + half] * c;
            re[at + half] = re[at] - p, im[at + half] = im[at] - q;
            re[at] += p, im[at] += q;
        }
        __syncthreads();
    }
    f[base + t] = re[t] * re[t] + im[t] * im[t];
}

// Numbers thrown until one is taken.
KERNEL(u_reject) {
    INDEX;
    unsigned s = x[i] * 747796405u + 2891336453u;
    int tries = 0;
    float u, v;
    do {
        s = s * 747796405u + 2891336453u;
        u = (s >> 16) * 3.0517578125e-05f - 1;
        s = s * 747796405u + 2891336453u;
        v = (s >> 16) * 3.0517578125e-05f - 1;
        tries++;
    } while (u * u + v * v >= 0.6f && tries < 100);
    y[i] = tries;
}

// Brackets: three nested loops, with ways out of all of them.
KERNEL(u_out) {
    INDEX;
    int s = 0;
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < (x[i + a] & 3) + 1; b++) {
            for (int c = 0; c < 3; c++) {
                int v = x[(i + a * 31 + b * 7 + c) % n];
                if (v % 19 == 2)
                    goto out;
                if (v % 7 == 3)
                    break;
                s += v & 63;
            }
            if (s % 5 == 1)
                break;
        }
        s ^= a;
    }
out:
    y[i] = s;
}

// A function that calls itself no deeper than its argument, as a loop over a sum of digits.
__device__ __noinline__ int digits(int v, int base) {
    int s = 0;
    while (v) {
        s += v % base;
        v /= base;
    }
    return s;
}
KERNEL(u_calls) {
    INDEX;
    int v = x[i], s = 0;
    if (v & 1)
        s = digits(v, 10);
    else if (v & 2)
        s = digits(v * 3, 7) + digits(v, 3);
    y[i] = s;
}

// Work that is passed on between the lanes of a warp.
KERNEL(u_passed) {
    INDEX;
    int left = x[i] & 31, sum = 0, lane = threadIdx.x & 31;
    for (;;) {
        unsigned busy = __ballot_sync(~0u, left > 0);
        if (!busy)
            break;
        int from = __ffs(busy) - 1, work = __shfl_sync(~0u, left, from);
        if (lane < work)
            sum += x[(i + work) % n] & 7;
        if (lane == from)
            left = work > 8 ? work - 8 : 0;
    }
    y[i] = sum;
}
