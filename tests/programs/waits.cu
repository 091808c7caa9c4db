// Queues: what is seen before a wait, without one, and in which order queues run.
#include <atomic>
#include <cstdio>
#include <cstring>

__global__ void fill(int *p) { p[blockIdx.x * blockDim.x + threadIdx.x] = 7; }
__global__ void append(int *p, int digit) { *p = *p * 10 + digit; }

static int early(bool waits, int blocks) {
    int *d, *h, bytes = blocks * 1024;
    cudaStream_t s;
    cudaMalloc(&d, bytes), cudaMallocHost(&h, bytes), cudaStreamCreate(&s);
    h[5] = 1;
    fill<<<blocks, 256, 0, s>>>(d);
    cudaMemcpyAsync(h, d, bytes, cudaMemcpyDeviceToHost, s);
    if (waits)
        cudaStreamSynchronize(s);
    printf("sees %d\n", h[5]);
    cudaStreamSynchronize(s);
    printf("then %d\n", h[5]);
    cudaFree(d), cudaFreeHost(h);
    return 0;
}

static int spin() {
    int *h;
    std::atomic<int> done{0};
    cudaMallocHost(&h, 4096);
    *h = 0;
    fill<<<1, 1>>>(h);
    while (*(volatile int *)h == 0)
        ;
    cudaLaunchHostFunc(nullptr, [](void *to) { *(std::atomic<int> *)to = 1; }, &done);
    while (!done)
        ;
    printf("saw %d\n", *h);
    cudaFreeHost(h);
    return 0;
}

static int order() {
    int *m;
    cudaStream_t streams[3];
    cudaMallocManaged(&m, 4);
    *m = 0;
    for (int i = 0; i < 3; i++)
        cudaStreamCreate(&streams[i]), append<<<1, 1, 0, streams[i]>>>(m, i + 1);
    cudaDeviceSynchronize();
    printf("order %d\n", *m);
    cudaFree(m);
    return 0;
}

int main(int, char **words) {
    if (!strcmp(words[1], "spin"))
        return spin();
    return !strcmp(words[1], "order") ? order() : early(!strcmp(words[1], "waited"), strcmp(words[1], "small") ? 16 : 1);
}
