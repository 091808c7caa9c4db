// Types and a macro of a library's header that is not there: given by -D they are those of the line.
// run: -D index_type=int -D real_type=double -D 'REAL(x)=x' -g 1 -b 32 --arg n=20
//     --arg 'u=float64[n]:random' --arg 'flux=float64[n]:zeros' --expect 'flux[1:-1]=0.5*(u[2:]-u[:-2])'
// expect: ok
#include <solver/solver_types.h>

__global__ void central(index_type n, const real_type *u, real_type *flux)
{
    index_type i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) flux[i] = REAL(0.5) * (u[i + 1] - u[i - 1]);
}
