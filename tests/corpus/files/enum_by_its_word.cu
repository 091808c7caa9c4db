// A parameter whose type is an enumeration with the word in front, as C writes it.
// run: -k pooled<float> -g 'cdiv(n,64)' -b 64 --arg n=300 --arg 'x=float32[2*n]:random' --arg 'y=float32[n]:empty'
//      --arg how=1 --expect 'y=np.maximum(x[::2],x[1::2])'
// expect: ok
enum pooling { POOL_MEAN, POOL_MAX };

template <typename T>
__global__ void pooled(int n, const T *x, T *y, enum pooling how) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T a = x[2 * i], b = x[2 * i + 1];
    y[i] = how == POOL_MAX ? (a > b ? a : b) : (a + b) / 2;
}
