// Rotary positions on pairs of floats.
// run: -k rope -g T -b 8 --arg 'q=float32[T,16]:random' --arg T=5
//      --expect 'q=np.reshape(np.stack((q0[:,::2]*np.cos(np.outer(np.arange(5),1/np.power(10000.,np.arange(8)/8)))-q0[:,1::2]*np.sin(np.outer(np.arange(5),1/np.power(10000.,np.arange(8)/8))),q0[:,::2]*np.sin(np.outer(np.arange(5),1/np.power(10000.,np.arange(8)/8)))+q0[:,1::2]*np.cos(np.outer(np.arange(5),1/np.power(10000.,np.arange(8)/8)))),axis=2),(5,16))'
//      --rtol 1e-4 --atol 1e-5
// expect: ok
__global__ void rope(float2 *q, int T) {
    int t = blockIdx.x, pair = threadIdx.x;
    float angle = t * powf(10000.0f, -pair / 8.0f), s, c;
    sincosf(angle, &s, &c);
    float2 v = q[t * 8 + pair];
    q[t * 8 + pair] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
