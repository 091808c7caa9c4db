// Objects of several classes in a list, as ray tracers have it: made with new, asked through virtual methods, deleted.
// run: -g 1 -b 32 --arg 'out=float32[n]:empty' --arg n=32 --expect 'out=np.where(np.arange(n)<2,1,0)+np.where(np.arange(n)%8==0,2,0)'
// expect: ok
class hitable {
  public:
    __device__ virtual float hit(int t) const = 0;
    __device__ virtual ~hitable() {}
};
class sphere : public hitable {
  public:
    int r;
    __device__ sphere(int r_) : r(r_) {}
    __device__ virtual float hit(int t) const { return t < r ? 1.f : 0.f; }
};
class plane : public hitable {
  public:
    int step;
    __device__ plane(int s) : step(s) {}
    __device__ virtual float hit(int t) const { return t % step == 0 ? 2.f : 0.f; }
};
class hitable_list : public hitable {
  public:
    hitable **list;
    int size;
    __device__ hitable_list(hitable **l, int n) : list(l), size(n) {}
    __device__ virtual float hit(int t) const {
        float sum = 0;
        for (int i = 0; i < size; i++) sum += list[i]->hit(t);
        return sum;
    }
};
__global__ void render(float *out, int n) {
    __shared__ hitable *objects[2];
    __shared__ hitable *world;
    if (threadIdx.x == 0) {
        objects[0] = new sphere(2);
        objects[1] = new plane(8);
        world = new hitable_list(objects, 2);
    }
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = world->hit(threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) {
        delete world;
        delete objects[1];
        delete objects[0];
    }
}
