// Occurrences of a letter, text as characters.
// run: -k count_char -g 4 -b 64 --arg 'text=int8[n]:random' --arg n=250 --arg letter=65 --arg 'count=int32[1]:zeros' --expect 'count=np.sum(text==65)'
// expect: ok
#include <string.h>
#include <regex>

__global__ void count_char(const char *text, int n, char letter, int *count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned mask = __ballot_sync(0xffffffff, i < n && text[i] == letter);
    if (threadIdx.x % warpSize == 0 && mask) atomicAdd(count, __popc(mask));
}
