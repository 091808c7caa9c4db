// Queens on a board: each thread counts the ways to go on from two rows that are filled. A stack in shared memory holds
// what was free in the rows above.
#define THREADS 96
#define ROWS 12
struct Row { unsigned columns, left, right, free; };
extern "C" __global__ void count(int side, const unsigned *starts, int many, unsigned long long *ways)
{
    __shared__ unsigned stack[4][ROWS][THREADS];
    const int own = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x;
    if (own >= many)
        return;
    const unsigned all = (1u << side) - 1;
    Row row = {starts[3 * own], starts[3 * own + 1], starts[3 * own + 2], 0};
    row.free = all & ~(row.columns | row.left | row.right);
    unsigned long long found = 0;
    int depth = 0;
    for (;;) {
        if (!row.free) {
            if (!depth)
                break;
            depth--;
            row = {stack[0][depth][lane], stack[1][depth][lane], stack[2][depth][lane], stack[3][depth][lane]};
            continue;
        }
        const unsigned queen = row.free & -row.free;
        row.free ^= queen;
        if ((row.columns | queen) == all) {
            found++;
            continue;
        }
        stack[0][depth][lane] = row.columns;
        stack[1][depth][lane] = row.left;
        stack[2][depth][lane] = row.right;
        stack[3][depth][lane] = row.free;
        depth++;
        row = {row.columns | queen, (row.left | queen) << 1, (row.right | queen) >> 1, 0};
        row.free = all & ~(row.columns | row.left | row.right);
    }
    ways[own] = found;
}
