// Conditional nodes of graphs. The values that are checked are those on an H100 with CUDA 13.0.
#include "checks.cuh"

__global__ void decide(const int *n, cudaGraphConditionalHandle odd) { cudaGraphSetConditional(odd, *n % 2); }
__global__ void count(int *sum, int by) { *sum += by; }
__global__ void step(int *n, cudaGraphConditionalHandle more) { cudaGraphSetConditional(more, --*n > 0); }

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, void *function, void **arguments) {
    cudaGraphNodeParams how = {};
    cudaGraphNode_t made = nullptr;
    how.type = cudaGraphNodeTypeKernel;
    how.kernel.func = function, how.kernel.kernelParams = arguments;
    how.kernel.gridDim = how.kernel.blockDim = dim3(1);
    C(cudaGraphAddNode(&made, graph, after, nullptr, after != nullptr, &how));
    return made;
}

static cudaGraph_t *add_condition(cudaGraphNode_t *made, cudaGraph_t graph, cudaGraphNode_t after,
                                  cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type, int bodies) {
    cudaGraphNodeParams how = {};
    how.type = cudaGraphNodeTypeConditional;
    how.conditional.handle = handle, how.conditional.type = type, how.conditional.size = bodies;
    C(cudaGraphAddNode(made, graph, &after, nullptr, 1, &how));
    return how.conditional.phGraph_out;
}

int main() {
    int *n, *sum, thousand = 1000, hundred = 100, one = 1, result;
    C(cudaMalloc(&n, 4));
    C(cudaMalloc(&sum, 4));
    C(cudaMemset(sum, 0, 4));
    cudaGraph_t graph, same;
    C(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle odd, more;
    C(cudaGraphConditionalHandleCreate(&odd, graph));
    C(cudaGraphConditionalHandleCreate(&more, graph, 1, cudaGraphCondAssignDefault));
    void *to_decide[] = {&n, &odd}, *of_odd[] = {&sum, &thousand}, *of_even[] = {&sum, &hundred};
    cudaGraphNode_t branch, loop, first = add_kernel(graph, nullptr, (void *)decide, to_decide);
    cudaGraph_t *bodies = add_condition(&branch, graph, first, odd, cudaGraphCondTypeIf, 2);
    add_kernel(bodies[0], nullptr, (void *)count, of_odd);
    add_kernel(bodies[1], nullptr, (void *)count, of_even);
    bodies = add_condition(&loop, graph, branch, more, cudaGraphCondTypeWhile, 1);
    cudaStream_t stream;
    C(cudaStreamCreate(&stream));
    C(cudaStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    count<<<1, 1, 0, stream>>>(sum, one);
    step<<<1, 1, 0, stream>>>(n, more);
    C(cudaStreamEndCapture(stream, &same));
    T(same == bodies[0]);
    cudaGraphNodeType type;
    C(cudaGraphNodeGetType(loop, &type));
    T(type == cudaGraphNodeTypeConditional);
    cudaGraphExec_t ready;
    C(cudaGraphInstantiate(&ready, graph, 0));
    int wanted = 0;
    for (int number : {4, 7, 1}) {
        C(cudaMemcpy(n, &number, 4, cudaMemcpyHostToDevice));
        C(cudaGraphLaunch(ready, stream));
        C(cudaStreamSynchronize(stream));
        C(cudaMemcpy(&result, sum, 4, cudaMemcpyDeviceToHost));
        wanted += number + (number % 2 ? thousand : hundred);
        T(result == wanted);
    }
    C(cudaFree(n));
    C(cudaFree(sum));
    printf(failed ? "FAILED %d\n" : "PASSED\n", failed);
    return failed != 0;
}
