// Streams, events and graphs of the host around a small kernel; lambdas for timing.
// run: -g 4 -b 64 --arg 'x=float32[256]:random' --arg s=0.5 --expect 'x=x0*0.5'
// expect: ok
#include <chrono>
#include <functional>
#include <map>

struct Timer {
    cudaEvent_t start, stop;
    Timer() { cudaEventCreate(&start), cudaEventCreate(&stop); }
    float time(std::function<void()> work) {
        cudaEventRecord(start);
        work();
        cudaEventRecord(stop);
        cudaEventSynchronize(stop);
        float ms = 0;
        cudaEventElapsedTime(&ms, start, stop);
        return ms;
    }
} timer;

std::map<int, float> results;
auto began = std::chrono::high_resolution_clock::now();

__global__ void scale(float *x, float s) { x[blockIdx.x * blockDim.x + threadIdx.x] *= s; }

int main() {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    results[64] = timer.time([&] { scale<<<4, 64, 0, stream>>>(nullptr, 0.5f); });
}
