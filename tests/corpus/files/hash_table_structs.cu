// An open-addressing hash table; the pairs are structs of two numbers, given as an array of them.
// run: -k gpu_hashtable_insert -g cdiv(n,64) -b 64 --arg 'hashtable=uint32[2*1024]:full(4294967295)' --arg
//      'kvs=uint32[n,2]:permutation' --arg n=300 --expect 'np.sort(hashtable)[:2*n]=np.arange(2*n)'
// expect: ok
#include "stdio.h"
#include "stdint.h"
#include "vector"
struct KeyValue { uint32_t key; uint32_t value; };
const uint32_t kHashTableCapacity = 1024;
const uint32_t kNumKeyValues = kHashTableCapacity / 2;
const uint32_t kEmpty = 0xffffffff;
__device__ uint32_t hash(uint32_t k) { k ^= k >> 16; k *= 0x85ebca6b; k ^= k >> 13; k *= 0xc2b2ae35; k ^= k >> 16; return k & (kHashTableCapacity - 1); }
__global__ void gpu_hashtable_insert(KeyValue *hashtable, const KeyValue *kvs, unsigned int n) {
    unsigned int threadid = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadid < n) {
        uint32_t key = kvs[threadid].key, value = kvs[threadid].value, slot = hash(key);
        while (true) {
            uint32_t prev = atomicCAS(&hashtable[slot].key, kEmpty, key);
            if (prev == kEmpty || prev == key) { hashtable[slot].value = value; return; }
            slot = (slot + 1) & (kHashTableCapacity - 1);
        }
    }
}
void insert_hashtable(KeyValue *pHashTable, const KeyValue *kvs, uint32_t num_kvs) {
    int mingridsize, threadblocksize;
    cudaOccupancyMaxPotentialBlockSize(&mingridsize, &threadblocksize, gpu_hashtable_insert, 0, 0);
    cudaEvent_t start; cudaEventCreate(&start);
    gpu_hashtable_insert<<<1, threadblocksize>>>(pHashTable, kvs, (uint32_t)num_kvs);
    printf("    GPU inserted %d items\n", num_kvs);
}
