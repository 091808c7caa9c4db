// The element's type is a member of a class of traits.
// run: -k 'increment<Wide>' -g 1 -b 32 --arg 'x=float64[32]:random' --arg by=0.5 --expect 'x=x0+0.5'
// expect: ok
struct Narrow {
    typedef float Type;
};
struct Wide {
    using Type = double;
};

template <typename T> __global__ void increment(typename T::Type *x, typename T::Type by) { x[threadIdx.x] += by; }

template __global__ void increment<Narrow>(float *, float);
