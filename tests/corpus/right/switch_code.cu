// A little machine: each thread runs the operation that its code names.
__global__ void operate(const int *code, const int *a, const int *b, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i], r;
    switch (code[i]) {
        case 0: r = x + y; break;
        case 1: r = x - y; break;
        case 2: r = x * y; break;
        case 3: r = y ? x / y : 0; break;
        case 4: r = y ? x % y : 0; break;
        case 5: r = x & y; break;
        case 6: r = x | y; break;
        case 7: r = x ^ y; break;
        case 8: r = x << (y & 7); break;
        case 9: r = x >> (y & 7); break;
        case 10: r = min(x, y); break;
        case 11: r = max(x, y); break;
        case 12: r = __popc(x); break;
        case 13: r = __clz(x); break;
        case 14: r = abs(x); break;
        default: r = -1;
    }
    out[i] = r;
}
