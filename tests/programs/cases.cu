// One program of many cases: the word of its command line chooses.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status = (call);                                             \
        if (status != cudaSuccess) {                                             \
            printf("line %d: %s\n", __LINE__, cudaGetErrorName(status));         \
            exit(2);                                                             \
        }                                                                        \
    } while (0)

const int N = 256;
__constant__ float weights[3];
__device__ int total = 5;
__managed__ int kept = 10;

template <class T> __global__ void add(T *x, const T *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] += y[i];
}

template <class F> __global__ void each(float *x, F f)
{
    x[threadIdx.x] = f(std::numeric_limits<float>::max());
}

__global__ void reverse(float *x)
{
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void use(float *y)
{
    y[threadIdx.x] = weights[threadIdx.x % 3];
    atomicAdd(&total, 1);
    if (threadIdx.x == 0)
        kept += 5;
}

__global__ void say(int n) { printf("thread %d of %d\n", threadIdx.x, n); }

struct AtTheEnd {
    int code = 0;
    float *memory = nullptr;
    ~AtTheEnd()
    {
        if (memory)
            printf("freed: %s\n", cudaGetErrorName(cudaFree(memory)));
        fflush(stdout);
        if (code)
            _exit(code);
    }
} at_the_end;

int main(int count, char **words)
{
    const char *word = count > 1 ? words[1] : "right";
    auto is = [&](const char *name) { return !strcmp(word, name); };
    float *x, *y, host[N];
    for (int i = 0; i < N; i++)
        host[i] = i;
    CHECK(cudaMalloc(&x, sizeof host));
    CHECK(cudaMallocManaged(&y, sizeof host));
    CHECK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(y, 0, sizeof host));
    if (is("right") || is("many") || is("outside"))
        for (int times = is("many") ? 100 : 1; times; times--)
            add<<<2, 128>>>(x, y, N);
    if (is("outside"))
        add<float><<<2, 256>>>(x, y, 300);
    if (is("race"))
        reverse<<<1, 64>>>(x);
    if (is("touch"))
        printf("%g\n", x[1]);
    if (is("symbols")) {
        float values[3] = {1, 2, 3};
        CHECK(cudaMemcpyToSymbol(weights, values, sizeof values));
        use<<<1, 32>>>(y);
        CHECK(cudaDeviceSynchronize());
        int counted;
        CHECK(cudaMemcpyFromSymbol(&counted, total, sizeof counted));
        printf("%g %d %d\n", y[2], counted, kept);
    }
    if (is("lambda")) {
        each<<<1, 4>>>(x, [] __host__ __device__(float most) { return most > 1e30f ? 3.f : 0.f; });
        CHECK(cudaMemcpy(host, x, 4, cudaMemcpyDeviceToHost));
        printf("lambda %g\n", host[0]);
    }
    if (is("print"))
        say<<<1, 2>>>(2);
    if (is("seven"))
        at_the_end.code = 7;
    if (is("streams")) {
        cudaStream_t one, two;
        cudaEvent_t done;
        CHECK(cudaStreamCreate(&one));
        CHECK(cudaStreamCreate(&two));
        CHECK(cudaEventCreate(&done));
        add<<<2, 128, 0, one>>>(x, x, N);
        CHECK(cudaEventRecord(done, one));
        CHECK(cudaStreamWaitEvent(two, done, 0));
        add<<<2, 128, 0, two>>>(y, x, N);
        CHECK(cudaStreamSynchronize(two));
        printf("%g\n", y[3]);
    }
    if (is("forget"))
        add<<<1, 2048>>>(x, y, N);
    if (is("unwritten") || is("set")) {
        float *a, *b;
        cudaMalloc(&a, N * sizeof *a), cudaMalloc(&b, N * sizeof *b);
        cudaMemset(a, 0, N * sizeof *a);
        if (is("set"))
            cudaMemset(b, 0, N * sizeof *b);
        add<<<1, N>>>(a, b, N);
        cudaFree(a), cudaFree(b);
    }
    if (is("update")) {
        float *sum;
        cudaMalloc(&sum, N * sizeof *sum);
        add<<<1, N>>>(sum, x, N);
        cudaFree(sum);
    }
    if (is("twice"))
        cudaFree(y);
    if (is("lack")) {
        cudaIpcMemHandle_t handle;
        cudaIpcGetMemHandle(&handle, x);
    }
    if (is("loop"))
        for (;;)
            ;
    if (is("read")) {
        char line[64];
        if (fgets(line, sizeof line, stdin))
            fprintf(stderr, "read %s", line);
    }
    if (is("statics"))
        CHECK(cudaMalloc(&at_the_end.memory, 4));
    if (is("fork")) {
        fflush(stdout);
        if (pid_t child = fork()) {
            waitpid(child, nullptr, 0);
        } else {
            fprintf(stderr, "child: %s\n", cudaGetErrorName(cudaMemset(x, 0, 4)));
            _exit(0);
        }
    }
    if (is("wild"))
        add<<<1, 1>>>(x + (1 << 28), y, 1);
    CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    printf("end %g\n", host[3]);
    cudaFree(x), cudaFree(y);
}
