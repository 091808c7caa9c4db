// A macro writes one kernel a type and operation, with a name pasted of three parts.
// run: -k abs_diff_u8 -g 1 -b 128 --arg 'a=uint8[100]:random' --arg 'b=uint8[100]:random' --arg 'out=uint8[100]:empty'
//      --arg n=100 --expect 'out=np.abs(a.astype(np.int32)-b.astype(np.int32))'
// expect: refused: astype
// then: -k abs_diff_u8 -g 1 -b 128 --arg 'a=uint8[100]:random' --arg 'b=uint8[100]:random' --arg 'out=uint8[100]:empty'
//      --arg n=100 --expect 'out=np.maximum(a,b)-np.minimum(a,b)'
#include <stdint.h>
#define TYPES(X) X(uint8_t, u8) X(uint16_t, u16) X(int32_t, i32)
#define KERNEL(T, S)                                                        \
    extern "C" __global__ void abs_diff_##S(T const *a, T const *b, T *out, int n) { \
        int i = threadIdx.x;                                                \
        if (i < n) out[i] = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];        \
    }
TYPES(KERNEL)
