// Files and streams of the host at namespace scope.
// run: -g 2 -b 32 --arg 'x=int32[64]:arange' --expect 'x=x0*x0'
// expect: ok
#include <cstdio>
#include <fstream>

FILE *fp;
FILE *logs[4];
std::ofstream out("results.csv");
static const char *names[] = {"first", "second"};

__global__ void square(int *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = x[i] * x[i];
}

int main() {
    fp = fopen("log.txt", "w");
    fprintf(fp, "%s\n", names[0]);
    fclose(fp);
}
