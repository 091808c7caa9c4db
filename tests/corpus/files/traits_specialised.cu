// Traits by specialisation: the vector type of an element.
// run: -k 'sum4<float>' -g 1 -b 8 --arg 'x=float32[32]:random' --arg 'out=float32[8]:empty'
//      --expect 'out=np.sum(np.reshape(x,(8,4)),axis=1)'
// expect: ok
template <typename T> struct Vec4;
template <> struct Vec4<float> {
    using Type = float4;
};
template <> struct Vec4<int> {
    using Type = int4;
};

template <typename T> __global__ void sum4(const typename Vec4<T>::Type *x, T *out) {
    typename Vec4<T>::Type v = x[threadIdx.x];
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
