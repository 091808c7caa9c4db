// C++20: a concept bounds the kernel's type.
// run: -k 'accumulate<float>' -g 1 -b 32 --arg 'x=float32[32]:random' --arg a=2 --expect 'x=x0+2'
// expect: ok
template <typename T>
concept Number = sizeof(T) >= 4 && requires(T a, T b) { a + b; };

template <Number T> __global__ void accumulate(T *x, T a) { x[threadIdx.x] += a; }
