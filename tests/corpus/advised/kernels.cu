// Kernels as people post them, each with what a specialist would say of it, written down before the tool was asked.
// `says` is a pattern that the report must have, `never` one that it must not.

struct Particle { float x, y, z, vx, vy, vz, mass, charge; };

// note: Structures of 32 bytes: six loads and three stores of 32 sectors each, where 4 would do if each field were an
//       array of its own (or two 16-byte accesses a particle). All of p, not one array among many.
// says: loads of p touch 32 sectors where 4 would do: 24 of every 32 bytes
// says: stores to p touch 32 sectors where 4 would do: 12 of every 32 bytes
// says: an array for each field
__global__ void particles_move(Particle *p, float dt, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        p[i].x += p[i].vx * dt;
        p[i].y += p[i].vy * dt;
        p[i].z += p[i].vz * dt;
    }
}

// note: A thread a row: lanes are a row (1024 bytes) apart in `m`, 32 sectors where 4 would do; a warp a row, or the
//       other way round. The store to `sum` is fine.
// says: loads of m touch 32 sectors where 4 would do
// says: 1 024 bytes from its neighbour
// never: to sum
__global__ void row_sums(const float *m, float *sum, int rows, int cols)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows)
        return;
    float s = 0;
    for (int c = 0; c < cols; c++)
        s += m[r * cols + c];
    sum[r] = s;
}

// note: A thread a column: neighbours read neighbours. Nothing to gain.
// never: line
__global__ void column_sums(const float *m, float *sum, int rows, int cols)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols)
        return;
    float s = 0;
    for (int r = 0; r < rows; r++)
        s += m[r * cols + c];
    sum[c] = s;
}

// note: Three loads of a byte, 3 bytes apart: 3 sectors each, all of which the three use together. No sector is lost;
//       staging in shared memory gains nothing.
// never: line
// never: shared memory
__global__ void luminance(const unsigned char *rgb, unsigned char *grey, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        grey[i] = (rgb[3 * i] * 77 + rgb[3 * i + 1] * 151 + rgb[3 * i + 2] * 28) >> 8;
}

// note: `right` is read down a column of a tile of 32 floats: a 32-way bank conflict; a row of 33 makes it 1 wavefront.
//       `left` is a broadcast. Global accesses are fine.
// says: loads of right take 32 wavefronts where 4 would do
// says: in each row .* brings it to 4
// never: loads of left
// never: of a touch
__global__ void gram(const float *a, float *c, int n)
{
    __shared__ float left[32][32], right[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32;
    float s = 0;
    for (int t = 0; t < n; t += 32) {
        left[ty][tx] = a[row * n + t + tx];
        right[ty][tx] = a[(col + ty) * n + t + tx];
        __syncthreads();
        for (int k = 0; k < 32; k++)
            s += left[ty][k] * right[tx][k];
        __syncthreads();
    }
    c[row * n + col + tx] = s;
}

// note: Doubles: the read down a column of 16 is a 16-way conflict a half of the warp; a row of 17 makes it 2
//       wavefronts, as many as 32 doubles need.
// says: loads of tile take 32 wavefronts where 2 would do .16-way
// says: one element more in each row .* brings it to 2
// never: sectors where
__global__ void transpose_doubles(const double *in, double *out, int n)
{
    __shared__ double tile[16][16];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

// note: Structures of three words in shared memory: 3 is odd, no conflict. The global side is a stride of 12 bytes of
//       which all is used. Nothing to gain.
// never: line
__global__ void centre(const float3 *in, float3 *out)
{
    __shared__ float3 s[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    s[threadIdx.x] = in[i];
    __syncthreads();
    float3 a = s[threadIdx.x], b = s[(threadIdx.x + 1) % 128];
    out[i] = make_float3((a.x + b.x) / 2, (a.y + b.y) / 2, (a.z + b.z) / 2);
}

// note: The reduction with interleaved addressing by a stride: 2-way, then 4-way ... bank conflicts in `s`; addressing
//       in sequence has none.
// says: of s take .* bank conflict
// says: let neighbouring threads take neighbouring elements
// never: pad
__global__ void reduce_strided(const float *in, float *out)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        int at = 2 * step * t;
        if (at < 256)
            s[at] += s[at + step];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = s[0];
}

// note: Every value falls into one bin: all adds of the grid go to one word of `bins`. A histogram a block in shared
//       memory, or adding up in the warp first.
// says: bins: 16 384 atomics from 64 blocks hit one address
// never: lines? \d+: loads
__global__ void histogram_hot(const int *in, int *bins, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i] / 16], 1);
}

// note: Every thread on one word; the largest of a warp (or block) first, then one atomic.
// says: out: 512 atomics from 64 blocks hit one address
// says: combine those of a block too
// never: loads
__global__ void maximum_atomic(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicMax(out, in[i]);
}

// note: Four ways in each warp by `kind`: a branch in which lanes part, on the lines of the switch. Sort by kind.
// says: line \d+: 9\d% of the instructions .* sort or group them
// never: literal
// never: sectors where
__global__ void four_kinds(const int *kind, const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    switch (kind[i]) {
    case 0: for (int k = 0; k < 20; k++) x = sinf(x); break;
    case 1: for (int k = 0; k < 20; k++) x = x * x + 0.5f; break;
    case 2: for (int k = 0; k < 20; k++) x = sqrtf(x + 1); break;
    default: for (int k = 0; k < 20; k++) x = expf(-x); break;
    }
    out[i] = x;
}

// note: The branch is the same for a whole block: no lanes part. Nothing to gain.
// never: line
__global__ void block_branch(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    if (blockIdx.x % 2)
        for (int k = 0; k < 20; k++) x = x * x + 0.5f;
    else
        for (int k = 0; k < 20; k++) x = sqrtf(x + 1);
    out[i] = x;
}

__constant__ float table[256];

// note: Lanes ask for different constants: one address a turn, up to 32 turns; shared memory or a plain load instead.
// says: loads of table ask for .* different addresses a warp
// says: shared memory
// never: sectors where
__global__ void table_constant(const unsigned char *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = table[in[i]];
}

__constant__ float weights[9];

// note: All lanes ask for the same constant: as it should be. Neighbouring loads of `in` begin off a sector: 5 sectors
//       for 4, which the caches serve. Nothing to gain worth a sentence of urgency.
// never: line
__global__ void smooth(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 4 || i >= n - 4)
        return;
    float s = 0;
    for (int k = 0; k < 9; k++)
        s += weights[k] * in[i + k - 4];
    out[i] = s;
}

// note: `best` is indexed by what is known only as it runs: local memory, 32 bytes a thread; keep it in registers by
//       unrolled comparisons.
// says: lines \d+, \d+, \d+: .* local memory
// says: data index an array
// says: side by side
// never: unroll the loops
__global__ void bucket_counts(const int *in, int *out, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    int count[8] = {0};
    for (int i = t; i < n; i += threads)
        count[in[i] & 7]++;
    for (int k = 0; k < 8; k++)
        out[k * threads + t] = count[k];
}

// note: Indices of 64 bits are divided by what is no constant: some 100 instructions each; 32 bits are enough here.
// never: subroutine
// never: line
__global__ void unravel(const float *in, float *out, size_t width, size_t height, size_t n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    size_t x = i % width, y = i / width % height, z = i / (width * height);
    out[(z * height + y) * width + x] = 2 * in[i];
}

// note: 0.7978845608 and the rest are doubles: the arithmetic runs in the FP64 pipe; write 0.7978845608f.
// says: Write 0.5f, 1.0f, 0.7978845608f, 0.044715f
// never: write 2.0f
// never: sectors where
__global__ void gelu_double(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float x = in[i];
        out[i] = 0.5 * x * (1.0 + tanhf(0.7978845608 * (x + 0.044715 * x * x * x)));
    }
}

// note: Rows of 1001 floats begin anywhere in a sector: 5 sectors where 4 would do, for `in` and `out`; a pitch of a
//       multiple of 8 floats.
// says: loads of in .* pad the pitch
// says: stores to out .* pad the pitch
// never: gaps
__global__ void scale_rows(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width)
        out[y * width + x] = 3 * in[y * width + x];
}

// note: A gather by random indices: 32 sectors where 4 would do if they came sorted; no layout helps. `index` and `out`
//       are fine.
// says: loads of in touch .* the addresses depend on data and are all over in
// never: to out
// never: of index
__global__ void gather_random(const float *in, const int *index, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[index[i]];
}

// note: A block of 4 x 64: a warp has 8 rows of 4 floats, half a sector each: 8 sectors where 4 would do. A wider
//       block.
// says: a block of 4 threads in x reads 16 bytes of each row; make it 8 wide
// says: writes 16 bytes
// never: pad
__global__ void copy_narrow(const float *in, float *out, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n)
        out[y * n + x] = in[y * n + x];
}

// note: The row is threadIdx.x: lanes are a row apart in both arrays, 32 sectors where 4 would do; exchange x and y.
// says: loads of a touch 32 sectors where 4 would do
// says: loads of b
// says: stores to c
// says: let threadIdx.x run along a row
// never: structures
__global__ void add_swapped(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < n)
        c[i * n + j] = a[i * n + j] + b[i * n + j];
}

// note: Single bytes side by side: a sector a request, all of it used. Wider accesses would save instructions, no
//       sectors.
// never: line
__global__ void invert(const unsigned char *in, unsigned char *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 255 - in[i];
}

// note: Four neighbouring floats a thread, one at a time: lanes are 16 bytes apart, 16 sectors a request where 4 would
//       do; one float4 a thread, or a stride of the block. What one load brings the next three use (L1).
// says: loads of in: each thread reads its 4 neighbouring elements one by one; one access of 16 bytes
// says: stores to out
// never: structures
__global__ void four_each(const float *in, float *out, int n)
{
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    for (int k = 0; k < 4; k++)
        if (first + k < n)
            out[first + k] = sqrtf(in[first + k]);
}

// note: The classic with row and column exchanged: `a` is read by a column (32 rows), `c` written so; `b` is a
//       broadcast. Exchange x and y.
// says: loads of a .* exchange threadIdx.x and threadIdx.y
// says: stores to c
// never: loads of b
__global__ void matmul_exchanged(const float *a, const float *b, float *c, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
    float s = 0;
    for (int k = 0; k < n; k++)
        s += a[row * n + k] * b[k * n + col];
    c[row * n + col] = s;
}

// note: One add a block, of its sum: 64 adds to one word in all. Nothing to gain.
// never: line
__global__ void total(const float *in, float *out, int n)
{
    __shared__ float part[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i < n ? in[i] : 0;
    for (int o = 16; o; o /= 2)
        x += __shfl_down_sync(0xFFFFFFFF, x, o);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; w++)
            x += part[w];
        atomicAdd(out, x);
    }
}

// note: A queue: one counter for the whole grid. The compiler adds once a warp; a count a block and one add a block
//       would make it 32 times fewer.
// says: count: 2 048 atomics .* combines the lanes of each warp
// says: ~ line \d+: hardware may count otherwise
// never: sort
__global__ void push_positive(const float *in, int *queue, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0.5f)
        queue[atomicAdd(count, 1)] = i;
}

// note: Lane 0 of each warp does all the work: 1 of 32 lanes in the loop. Spread the loop over the lanes.
// says: 95% of the instructions run with 1 of 32 lanes .* spread this work over its lanes
// never: sort
__global__ void lane_zero(const float *in, float *out, int each)
{
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) {
        float s = 0;
        for (int k = 0; k < each; k++)
            s += in[warp * each + k];
        out[warp] = s;
    }
}

// note: Lists of different lengths, a thread a list: a warp goes on until its longest is done. Lanes also read apart
//       in `value` (a gather by `start`).
// says: loads of value .* stretch of its own, which the data say
// says: wait for the lane with the most iterations; give the lanes of a warp work of similar length
// never: sorted or grouped
__global__ void list_sums(const int *start, const float *value, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float s = 0;
    for (int k = start[i]; k < start[i + 1]; k++)
        s += value[k];
    out[i] = s;
}

// note: Swizzled by exclusive or: no conflict either way. Nothing to gain.
// never: line
__global__ void transpose_swizzled(const float *in, float *out, int n)
{
    __shared__ float tile[32][32];
    int tx = threadIdx.x, ty = threadIdx.y;
    for (int r = ty; r < 32; r += 8)
        tile[r][tx ^ r] = in[(blockIdx.y * 32 + r) * n + blockIdx.x * 32 + tx];
    __syncthreads();
    for (int r = ty; r < 32; r += 8)
        out[(blockIdx.x * 32 + r) * n + blockIdx.y * 32 + tx] = tile[tx][r ^ tx];
}

// note: All lanes add to few words of shared memory: lanes on one word wait for one another. A histogram a warp, or
//       adding up by matching lanes first.
// never: loads
// never: line
__global__ void histogram_block(const int *in, int *bins, int n)
{
    __shared__ int mine[4];
    if (threadIdx.x < 4)
        mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i] & 3], 1);
    __syncthreads();
    if (threadIdx.x < 4)
        atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

// note: z runs with threadIdx.x but is the slowest index of the field: lanes are a plane apart; x must run with
//       threadIdx.x.
// says: loads of in touch 30 sectors where 4 would do: neighbouring threads read a column
// says: stores to out
// never: structures
__global__ void laplace_z(const float *in, float *out, int n)
{
    int z = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, x = blockIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1)
        return;
    int at = (z * n + y) * n + x;
    out[at] = in[at - 1] + in[at + 1] + in[at - n] + in[at + n] + in[at - n * n] + in[at + n * n] - 6 * in[at];
}

// note: Halves one by one: 2 sectors a request, all used. Nothing to gain in sectors.
// never: line
__global__ void axpy_half_bits(const unsigned short *in, unsigned short *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] ^ 0x8000;
}

// note: Words of a byte each of shared memory, one column of bytes a thread: four threads share a word, 8 words a warp,
//       no conflict. Nothing to gain there.
// says: loads of mine take 16 wavefronts where 1 would do
// says: bytes more in each row .* brings it to 1
// never: elements more
__global__ void byte_columns(const unsigned char *in, int *out, int each)
{
    __shared__ unsigned char mine[16][128];
    for (int b = 0; b < 16; b++)
        mine[b][threadIdx.x] = 0;
    for (int k = 0; k < each; k++)
        mine[in[(blockIdx.x * each + k) * 128 + threadIdx.x] & 15][threadIdx.x]++;
    __syncthreads();
    if (threadIdx.x < 16) {
        int s = 0;
        for (int t = 0; t < 128; t++)
            s += mine[threadIdx.x][t];
        out[blockIdx.x * 16 + threadIdx.x] = s;
    }
}

// note: Too many values for the 32 registers that 2048 threads an SM leave: what does not fit is spilled to local
//       memory. Fewer threads a block or a smaller tile; not `array with a dynamic index`.
// says: values that do not fit the registers are spilled to local memory
// never: unroll the loops
// never: sectors where
__global__ void __launch_bounds__(1024, 2) many_registers(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float r[40];
#pragma unroll
    for (int k = 0; k < 40; k++)
        r[k] = in[k * n + i];
    float s = 0;
#pragma unroll
    for (int a = 0; a < 40; a++)
#pragma unroll
        for (int b = a + 1; b < 40; b += 3)
            s += r[a] * r[b] + r[(a * 7 + b) % 40];
    out[i] = s;
}

// note: A neighbour's value by shared memory with a halo of two: the loads of the halo are by two lanes only, which is
//       little. No conflict. Nothing to gain.
// never: line
__global__ void difference(const float *in, float *out, int n)
{
    __shared__ float s[258];
    int i = blockIdx.x * 256 + threadIdx.x, t = threadIdx.x + 1;
    s[t] = i < n ? in[i] : 0;
    if (threadIdx.x == 0)
        s[0] = i > 0 ? in[i - 1] : 0;
    if (threadIdx.x == 255)
        s[257] = i + 1 < n ? in[i + 1] : 0;
    __syncthreads();
    if (i < n)
        out[i] = (s[t + 1] - s[t - 1]) / 2;
}
