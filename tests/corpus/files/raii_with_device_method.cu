// A class of the host with methods for both sides, passed to no kernel but used by one.
// run: -g 1 -b 16 --arg 'x=float32[16]:arange' --expect 'x=x0*x0+1'
// expect: ok
#include <memory>
#include <vector>

class Polynomial {
  public:
    explicit Polynomial(std::vector<float> coefficients) : host(new std::vector<float>(std::move(coefficients))) {
        cudaMalloc(&device, host->size() * sizeof(float));
    }
    ~Polynomial() { cudaFree(device); }
    std::shared_ptr<Polynomial> copy() const;
    __device__ static float at(float x) { return x * x + 1.0f; }

  private:
    std::vector<float> *host;
    float *device;
};

__global__ void evaluate(float *x) { x[threadIdx.x] = Polynomial::at(x[threadIdx.x]); }
