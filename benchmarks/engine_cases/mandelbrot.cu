// Steps until a point of the plane leaves the circle of radius 2: lanes of a warp leave the loop at different times.
extern "C" __global__ void steps(int *image, int side, int most)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side)
        return;
    const float a = 3.0f * x / side - 2.0f, b = 3.0f * y / side - 1.5f;
    float real = 0, imaginary = 0;
    int step = 0;
    for (; step < most && real * real + imaginary * imaginary < 4.0f; step++) {
        const float next = real * real - imaginary * imaginary + a;
        imaginary = 2 * real * imaginary + b;
        real = next;
    }
    image[y * side + x] = step;
}
