// A recursive sort with two calls of itself and references into the caller's array.
// run: -g 1 -b 16 --arg 'a=int32[16,12]:random' --arg cols=12 --expect 'a=np.sort(a0,axis=1)'
// expect: ok
#include <cstdio>
__device__ void exchange(int &a, int &b) {
    int t = a;
    a = b;
    b = t;
}
__device__ void quicksort(int *a, int low, int high) {
    if (low >= high) return;
    int pivot = a[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (a[i] < pivot) i++;
        while (a[j] > pivot) j--;
        if (i <= j) exchange(a[i++], a[j--]);
    }
    quicksort(a, low, j);
    quicksort(a, i, high);
}
__global__ void sort_rows(int *a, int cols) { quicksort(a + threadIdx.x * cols, 0, cols - 1); }
int main() { printf("sorts\n"); }
