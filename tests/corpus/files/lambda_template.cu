// C++20: a lambda with a template head, a consteval function, a three-way comparison.
// run: -g 1 -b 32 --arg 'x=int32[32]:arange' --expect 'x=np.where(x0<10,x0+8,x0-8)'
// expect: ok
consteval int step() { return 8; }

__global__ void shift(int *x) {
    auto add = []<typename T>(T a, int b) { return a + b; };
    x[threadIdx.x] = add(x[threadIdx.x], x[threadIdx.x] < 10 ? step() : -step());
}
