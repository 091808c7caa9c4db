// An enumeration as a parameter, with host code that prints it.
// run: -g 1 -b 32 --arg op=2 --arg 'a=float32[32]:random' --arg 'b=float32[32]:random' --arg 'c=float32[32]:empty'
//      --expect 'c=np.maximum(a,b)'
// expect: ok
#include <iostream>
#include <map>
#include <string>
enum class Op : int { Add, Mul, Max };
std::map<std::string, Op> names = {{"add", Op::Add}};
std::ostream &operator<<(std::ostream &out, Op op) { return out << (int)op; }
__global__ void binary(Op op, const float *a, const float *b, float *c) {
    int i = threadIdx.x;
    switch (op) {
    case Op::Add: c[i] = a[i] + b[i]; break;
    case Op::Mul: c[i] = a[i] * b[i]; break;
    default: c[i] = fmaxf(a[i], b[i]);
    }
}
