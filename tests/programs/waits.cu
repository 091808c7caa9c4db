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

__global__ void step(int *p, int number) {
    printf("launch %d after %d\n", number, *p);
    p[number == 1501 ? 1 << 30 : 0] = number;
}

// More launches than a queue holds; number 1501 stores outside the memory.
static int ahead() {
    int *p, last;
    cudaMalloc(&p, 4), cudaMemset(p, 0, 4);
    for (int i = 1; i <= 1600; i++)
        step<<<1, 1>>>(p, i);
    printf("launched %d\n", cudaPeekAtLastError());
    printf("waited %d\n", cudaDeviceSynchronize());
    printf("copied %d\n", cudaMemcpy(&last, p, 4, cudaMemcpyDeviceToHost));
    return 0;
}

// The host writes managed memory between a launch and the wait for it.
static int beside() {
    int *m;
    cudaMallocManaged(&m, 4);
    *m = 0;
    append<<<1, 1>>>(m, 1);
    *m = 5;
    cudaDeviceSynchronize();
    printf("beside %d\n", *m);
    cudaFree(m);
    return 0;
}

int main(int, char **words) {
    if (!strcmp(words[1], "ahead"))
        return ahead();
    if (!strcmp(words[1], "beside"))
        return beside();
    if (!strcmp(words[1], "spin"))
        return spin();
    return !strcmp(words[1], "order") ? order() : early(!strcmp(words[1], "waited"), strcmp(words[1], "small") ? 16 : 1);
}
