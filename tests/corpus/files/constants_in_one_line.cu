// Several constants in one declaration, each set from the line; a local variable is called like one of them.
// run: -g 1 -b 32 --const inner=0.5 --const outer=0.25 --const 'edge=float32[2]:ones'
//     --arg 'f=float32[34]:random' --arg 'df=float32[32]:empty' --expect 'df=0.5*f[1:-1]+0.25*(f[2:]+f[:-2])+1'
// expect: ok
__constant__ float inner, outer, edge[2];

__global__ void stencil(const float *f, float *df)
{
    int i = threadIdx.x + 1;
    df[i - 1] = inner * f[i] + outer * (f[i + 1] + f[i - 1]) + edge[i & 1];
}
