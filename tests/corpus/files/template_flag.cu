// A template of a type, a flag and an enumeration: the error's line has gaps for what is not a type.
// run: -k ranked -g 2 -b 64 --arg 'x=float32[100]:random' --arg 'y=float32[100]:empty' --arg n=100
// expect: refused: --kernel 'ranked<float, ..., ...>' .*--arg 'x=float32\[100\]:random'
// then: -k 'ranked<float,true,RISING>' -g 2 -b 64 --arg 'x=float32[100]:random' --arg 'y=float32[100]:empty'
//      --arg n=100 --expect 'y=np.sort(x)'
enum direction { RISING, FALLING };

template <typename T, bool stable, direction order>
__global__ void ranked(const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rank = 0;
    if (i >= n) return;
    for (int j = 0; j < n; ++j) {
        bool before = order == RISING ? x[j] < x[i] : x[j] > x[i];
        rank += before || (stable && x[j] == x[i] && j < i);
    }
    y[rank] = x[i];
}
