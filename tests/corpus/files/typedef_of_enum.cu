// An enumeration that only its typedef names, as C has them, chooses what a kernel does; it is given as a number.
// run: -g 1 -b 32 --arg 'x=float32[32]:normal(0,1)' --arg how=1 --arg slope=LEAK --expect 'x=np.where(x0>0,x0,0.125*x0)'
// expect: refused: LEAK
// then: -g 1 -b 32 --arg 'x=float32[32]:normal(0,1)' --arg how=1 --arg slope=1 --expect 'x=np.where(x0>0,x0,0.125*x0)'
typedef enum { STEP, LEAK } ACTIVATION;
typedef enum slope_kind { TENTH, EIGHTH } SLOPE;

__global__ void activate(float *x, ACTIVATION how, SLOPE slope)
{
    float v = x[threadIdx.x], leak = slope == EIGHTH ? 0.125f : 0.1f;
    switch (how) {
    case STEP: x[threadIdx.x] = v > 0; break;
    case LEAK: x[threadIdx.x] = v > 0 ? v : leak * v; break;
    }
}
