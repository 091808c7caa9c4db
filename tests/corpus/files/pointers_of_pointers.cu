// Three levels of pointers, which no argument can be; beside it the same by one array, as the message says.
// run: -k cube -g 1 -b 8 --arg 'x=float32[2,2,2]:random'
// expect: refused: takes 'float\*\*\* x', pointers to pointers to pointers.*let it take one array
// then: -k flat -g 1 -b 8 --arg 'x=float32[8]:random' --expect 'x=2*x0'
__global__ void cube(float ***x) { x[threadIdx.x / 4][threadIdx.x / 2 % 2][threadIdx.x % 2] *= 2.0f; }

__global__ void flat(float *x) { x[(threadIdx.x / 4 * 2 + threadIdx.x / 2 % 2) * 2 + threadIdx.x % 2] *= 2.0f; }
