// Patches to columns with the loop macro that frameworks share.
// run: -k im2col -g 1 -b 64 --arg 'im=float32[6,6]:random' --arg 'col=float32[9,16]:empty'
//      --expect 'col=np.reshape(np.stack((im[0:4,0:4],im[0:4,1:5],im[0:4,2:6],im[1:5,0:4],im[1:5,1:5],im[1:5,2:6],im[2:6,0:4],im[2:6,1:5],im[2:6,2:6])),(9,16))'
// expect: ok
#include "caffe/util/math_functions.hpp"
#define CUDA_KERNEL_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)

__global__ void im2col(const float *im, float *col) {
    CUDA_KERNEL_LOOP(index, 16) {
        int x = index % 4, y = index / 4;
        for (int k = 0; k < 9; ++k) col[k * 16 + index] = im[(y + k / 3) * 6 + x + k % 3];
    }
}

namespace caffe {
template <typename Dtype> void Im2colLayer<Dtype>::Forward_gpu(const vector<Blob<Dtype> *> &bottom, const vector<Blob<Dtype> *> &top) {
    im2col<<<1, 64>>>(bottom[0]->gpu_data(), top[0]->mutable_gpu_data());
    CUDA_POST_KERNEL_CHECK;
}
INSTANTIATE_LAYER_GPU_FUNCS(Im2colLayer);
}
