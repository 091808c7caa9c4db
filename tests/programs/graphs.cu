#include "checks.cuh"

__global__ void add(int *p, int n, int v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] += v;
}
__device__ int sym;
static void host(void *d) { ++*(int *)d; }
int main() {
    int *d, n = 256, v = 3, h[256], calls = 0;
    C(cudaMalloc(&d, 1024));
    for (int i = 0; i < 256; i++)
        h[i] = i;
    cudaGraph_t g;
    C(cudaGraphCreate(&g, 0));
    cudaGraphNode_t up, k1, k2, down, hn, ms, child, em;
    // the kernel's node is made before the copy that it needs
    void *a1[] = {&d, &n, &v};
    cudaKernelNodeParams kp{};
    kp.func = (void *)add;
    kp.gridDim = 1;
    kp.blockDim = 256;
    kp.kernelParams = a1;
    C(cudaGraphAddKernelNode(&k1, g, 0, 0, &kp));
    C(cudaGraphAddMemcpyNode1D(&up, g, 0, 0, d, h, 1024, cudaMemcpyHostToDevice));
    C(cudaGraphAddDependencies(g, &up, &k1, 0, 1));
    v = 10;
    C(cudaGraphAddKernelNode(&k2, g, &k1, 1, &kp));
    cudaHostNodeParams hp{host, &calls};
    C(cudaGraphAddHostNode(&hn, g, &k2, 1, &hp));
    static int out[256];
    C(cudaGraphAddMemcpyNode1D(&down, g, &k2, 1, out, d, 1024, cudaMemcpyDeviceToHost));
    C(cudaGraphAddEmptyNode(&em, g, &down, 1));
    size_t num = 0;
    C(cudaGraphGetNodes(g, 0, &num));
    T(num == 6);
    C(cudaGraphGetRootNodes(g, 0, &num));
    T(num == 1);
    C(cudaGraphGetEdges(g, 0, 0, 0, &num));
    T(num == 5);
    cudaGraphNodeType ty;
    C(cudaGraphNodeGetType(hn, &ty));
    T(ty == cudaGraphNodeTypeHost);
    cudaGraphExec_t x;
    C(cudaGraphInstantiate(&x, g, 0));
    C(cudaGraphLaunch(x, 0));
    C(cudaDeviceSynchronize());
    T(calls == 1 && out[5] == 18);
    v = 100;
    C(cudaGraphExecKernelNodeSetParams(x, k2, &kp));
    h[5] = 7;
    C(cudaGraphLaunch(x, 0));
    C(cudaStreamSynchronize(0));
    T(out[5] == 110 && calls == 2);
    cudaGraph_t parent;
    C(cudaGraphCreate(&parent, 0));
    C(cudaGraphAddChildGraphNode(&child, parent, 0, 0, g));
    cudaMemsetParams mp{d, 0, 1, 4, 256, 1};
    C(cudaGraphAddMemsetNode(&ms, parent, &child, 1, &mp));
    cudaGraphExec_t px;
    C(cudaGraphInstantiate(&px, parent, 0));
    C(cudaGraphLaunch(px, 0));
    C(cudaDeviceSynchronize());
    C(cudaMemcpy(h, d, 1024, cudaMemcpyDeviceToHost));
    T(h[9] == 1 && calls == 3);
    cudaGraph_t cl;
    C(cudaGraphClone(&cl, g));
    cudaGraphNode_t f;
    C(cudaGraphNodeFindInClone(&f, k2, cl));
    C(cudaGraphDestroyNode(f));
    C(cudaGraphGetNodes(cl, 0, &num));
    T(num == 5);
    cudaGraphExecUpdateResultInfo ri;
    C(cudaGraphExecUpdate(x, g, &ri));
    T(ri.result == cudaGraphExecUpdateSuccess);
    T(cudaGraphExecUpdate(x, cl, &ri) == cudaErrorGraphExecUpdateFailure);
    cudaGetLastError();
    // a capture with a fork and a join
    cudaStream_t s, t;
    cudaEvent_t a, b;
    C(cudaStreamCreate(&s));
    C(cudaStreamCreate(&t));
    C(cudaEventCreate(&a));
    C(cudaEventCreate(&b));
    C(cudaMemset(d, 0, 1024));
    C(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    add<<<1, 256, 0, s>>>(d, 256, 1);
    C(cudaEventRecord(a, s));
    C(cudaStreamWaitEvent(t, a, 0));
    add<<<1, 256, 0, t>>>(d, 256, 2);
    C(cudaEventRecord(b, t));
    C(cudaStreamWaitEvent(s, b, 0));
    add<<<1, 256, 0, s>>>(d, 256, 4);
    cudaStreamCaptureStatus st;
    C(cudaStreamIsCapturing(s, &st));
    T(st == cudaStreamCaptureStatusActive);
    int *ga;
    C(cudaMallocAsync(&ga, 1024, s));
    C(cudaMemsetAsync(ga, 0, 1024, s));
    add<<<1, 256, 0, s>>>(ga, 256, 4);
    C(cudaFreeAsync(ga, s));
    cudaGraph_t cg;
    C(cudaStreamEndCapture(s, &cg));
    cudaGraphExec_t cx;
    C(cudaGraphInstantiate(&cx, cg, 0));
    C(cudaGraphLaunch(cx, s));
    C(cudaGraphLaunch(cx, s));
    C(cudaStreamSynchronize(s));
    C(cudaMemcpy(h, d, 1024, cudaMemcpyDeviceToHost));
    T(h[3] == 14);
    C(cudaFree(d));
    C(cudaGraphDestroy(g));
    C(cudaGraphExecDestroy(x));
    printf(failed ? "FAILED %d\n" : "PASSED\n", failed);
    return failed != 0;
}
