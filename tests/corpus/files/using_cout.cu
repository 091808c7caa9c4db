// Names of the standard library are brought in one by one.
// run: -g 1 -b 64 --arg 'x=float32[64]:random' --expect 'x=np.sqrt(x0)'
// expect: ok
#include <iostream>
#include <string>
#include <vector>
using std::cout;
using std::endl;
using std::string;
using std::vector;
using namespace std;

__global__ void roots(float *x) { x[threadIdx.x] = sqrtf(x[threadIdx.x]); }

void report(const vector<float> &values, const string &title) {
    cout << title << endl;
    for (float value : values) cout << value << " ";
}
