// A kernel that exchanges the pointers to two rows instead of their elements: neither pointer is an array of its own line.
// run: -g 1 -b 1 --arg 'm=float32[2,8]:arange'
// expect: refused: writes to 'the pointers to the rows of m' at .*rows_swapped.cu:8, which is read-only
// then: -g 1 -b 1 --arg 'm=null'
__global__ void swap_rows(float **m)
{
    if (!m) return;
    float *first = m[0]; m[0] = m[1]; m[1] = first;
}
