// Default arguments and values of a template; the extent is a macro.
// run: -k 'row_sum<>' -D COLS=12 -g 5 -b 1 --arg 'x=float32[5,COLS]:random' --arg 'out=float32[5]:empty'
//      --expect 'out=np.sum(x,axis=1)'
// expect: ok
#ifndef COLS
#define COLS 8
#endif
template <typename T = float, int N = COLS> __global__ void row_sum(const T (*x)[N], T *out) {
    T sum = 0;
    for (int i = 0; i < N; i++) sum += x[blockIdx.x][i];
    out[blockIdx.x] = sum;
}
