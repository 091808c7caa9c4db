// Alignment of two sequences: tiles of 16 x 16 cells on one antidiagonal of the table, a block of 16 threads each. A cell
// follows from its neighbours above, to the left and between the two, so that a tile is filled diagonal by diagonal.
#define SIDE 16
extern "C" __global__ void fill(const int *score, int *table, int pitch, int gap, int diagonal, int first)
{
    __shared__ int cells[SIDE + 1][SIDE + 1], scores[SIDE][SIDE];
    const int column = (first + blockIdx.x) * SIDE, row = (diagonal - first - blockIdx.x) * SIDE, lane = threadIdx.x;
    int *corner = table + row * pitch + column;
    for (int y = 0; y < SIDE; y++)
        scores[y][lane] = score[(row + y + 1) * pitch + column + lane + 1];
    cells[0][lane + 1] = corner[lane + 1];
    cells[lane + 1][0] = corner[(lane + 1) * pitch];
    if (lane == 0)
        cells[0][0] = corner[0];
    __syncthreads();
    for (int step = 0; step < 2 * SIDE - 1; step++) {
        const int y = step - lane;
        if (y >= 0 && y < SIDE) {
            const int match = cells[y][lane] + scores[y][lane];
            cells[y + 1][lane + 1] = max(match, max(cells[y][lane + 1], cells[y + 1][lane]) - gap);
        }
        __syncthreads();
    }
    for (int y = 0; y < SIDE; y++)
        corner[(y + 1) * pitch + lane + 1] = cells[y + 1][lane + 1];
}
