// Whole numbers of every width by their many names.
// run: -g 1 -b 1 --arg 'out=int64[6]:empty' --arg a=1 --arg b=2 --arg c=3 --arg d=4 --arg e=5 --arg f=6
//      --expect 'out=np.arange(1,7)'
// expect: ok
#include <cstddef>
#include <cstdint>
__global__ void widths(long long int *out, unsigned char a, unsigned short int b, std::int32_t c, size_t d,
                       unsigned long long e, int64_t f) {
    long long int values[] = {a, b, c, (long long)d, (long long)e, f};
    for (int i = 0; i < 6; i++) out[i] = values[i];
}
