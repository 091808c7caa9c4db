// Functions that CUDA has removed but older files use. Each calls the function that replaces it. For GPUs since Volta,
// CUDA 9 removed the warp functions without a mask, which worked on the active lanes.
template <class T> static __device__ __forceinline__ T __shfl(T value, int lane, int width = 32)
{ return __shfl_sync(__activemask(), value, lane, width); }
template <class T> static __device__ __forceinline__ T __shfl_up(T value, unsigned int delta, int width = 32)
{ return __shfl_up_sync(__activemask(), value, delta, width); }
template <class T> static __device__ __forceinline__ T __shfl_down(T value, unsigned int delta, int width = 32)
{ return __shfl_down_sync(__activemask(), value, delta, width); }
template <class T> static __device__ __forceinline__ T __shfl_xor(T value, int mask, int width = 32)
{ return __shfl_xor_sync(__activemask(), value, mask, width); }
#define __any(predicate) __any_sync(__activemask(), predicate)
#define __all(predicate) __all_sync(__activemask(), predicate)
#define __ballot(predicate) __ballot_sync(__activemask(), predicate)
static __device__ __forceinline__ float saturate(float x) { return __saturatef(x); }
