// A picture program: every type of the host is of a library that is not there.
// run: -k invert -g '2,2' -b '16,16' --arg 'pixels=uint8[30,20]:random' --arg width=20 --arg height=30
//      --expect 'pixels=255-pixels0'
// expect: ok
#include <opencv2/opencv.hpp>
#include <opencv2/core/cuda.hpp>

static cv::Mat picture;
cv::VideoCapture *camera = nullptr;

__global__ void invert(unsigned char *pixels, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) pixels[y * width + x] = 255 - pixels[y * width + x];
}

cv::Mat load(const std::string &path) {
    cv::Mat image = cv::imread(path, cv::IMREAD_GRAYSCALE);
    CV_Assert(!image.empty());
    return image;
}
