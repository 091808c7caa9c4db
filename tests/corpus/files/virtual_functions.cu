// An object with a virtual method, made and used in one kernel.
// run: -g 1 -b 16 --arg 'out=float32[16]:empty' --expect 'out=np.arange(16)*2.0'
// expect: ok
struct Shape {
    __device__ virtual float area() const = 0;
};
struct Box : Shape {
    float w;
    __device__ Box(float w) : w(w) {}
    __device__ float area() const override { return w * 2; }
};
__global__ void areas(float *out) {
    Box box(threadIdx.x);
    out[threadIdx.x] = box.area();
}
