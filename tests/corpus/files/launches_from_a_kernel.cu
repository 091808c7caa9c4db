// A kernel that launches kernels: what the recursion did is said by steps.
// run: -k halve_all -g 1 -b 4 --arg 'x=int32[8]:random' --arg n=8
// expect: refused: launches halve_all itself .dynamic parallelism.*--step
// then: --step 'halve<<<1, 4>>>(x, 4)' --step 'halve<<<1, 2>>>(x, 2)' --step 'halve<<<1, 1>>>(x, 1)'
//     --arg 'x=int32[8]:random' --expect 'x[0]=np.sum(x0)'
__global__ void halve(int *x, int half) { x[threadIdx.x] += x[threadIdx.x + half]; }

__global__ void halve_all(int *x, int n)
{
    if (n == 1) return;
    x[threadIdx.x] += x[threadIdx.x + n / 2];
    __syncthreads();
    if (threadIdx.x == 0) halve_all<<<1, n / 4>>>(x, n / 2);
}
