// A kernel with a pack of parameters: they are called by the pack's name and their place.
// run: -k 'weighted<float, float, int>' -g 1 -b 32 --arg 'y=float32[32]:zeros' --arg terms0=0.5 --arg terms1=3
//     --expect 'y=np.arange(32)*(terms0+terms1)'
// expect: ok
template <typename T>
__device__ T total(T last) { return last; }

template <typename T, typename... Rest>
__device__ T total(T first, Rest... rest) { return first + T(total(rest...)); }

template <typename T, typename... Terms>
__global__ void weighted(T *y, Terms... terms) { y[threadIdx.x] = T(threadIdx.x) * T(total(terms...)); }
