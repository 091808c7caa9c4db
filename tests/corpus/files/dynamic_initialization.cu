// Variables of the host that start from a call.
// run: -g 1 -b 100 --arg 'x=float64[100]:random' --expect 'x=x0/2'
// expect: ok
#include <cstdlib>
#include <ctime>

static int read_setting(const char *name) { return std::atoi(std::getenv(name)); }

int threads = read_setting("THREADS");
long started = std::time(nullptr);
const double begin_time = clock() / (double)CLOCKS_PER_SEC;

__global__ void halve(double *x) { x[threadIdx.x] *= 0.5; }
