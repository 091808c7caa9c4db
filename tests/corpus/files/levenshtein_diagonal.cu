// One anti-diagonal of an edit distance.
// run: -k diagonal -g 1 -b 16 --arg 'a=int8[16]:random' --arg 'b=int8[16]:random' --arg 'prev2=int32[17]:zeros'
//      --arg 'prev=int32[17]:zeros' --arg 'cur=int32[17]:zeros' --arg d=0 --expect 'cur=np.where(np.arange(17)==0,1*(a[0]!=b[0]),0)'
// expect: ok
__global__ void diagonal(const char *a, const char *b, const int *prev2, const int *prev, int *cur, int d) {
    int i = threadIdx.x, j = d - i;
    if (j < 0 || j > 15) return;
    cur[i] = min(min(prev[i] + 1, prev[i + 1] + 1), prev2[i] + (a[i] != b[j]));
}
