// A filter as viewers have it: one pass draws into a surface, the next reads the same array as a texture, and writes in
// place of colours what a window shows.
// run: --step 'draw<<<(cdiv(w,16), cdiv(h,16)), (16,16)>>>(canvas, w, h)'
//      --step 'present<<<(cdiv(w,16), cdiv(h,16)), (16,16)>>>(view, screen, w, h)'
//      --arg 'canvas=surface(uint8[h,w,4]:zeros, channels=4)' --arg 'view=texture(canvas, read=normalized)'
//      --arg 'screen=surface(float32[h,w]:empty)' --arg w=50 --arg h=37
//      --expect 'canvas[:,:,0]=np.arange(w)+0*np.arange(h)[:,None]' --expect 'canvas[:,:,3]=255'
//      --expect 'screen=(np.arange(w)+2*np.arange(h)[:,None])/255'
// expect: ok
__device__ __forceinline__ uchar4 shade(int x, int y) { return make_uchar4(x, y, x ^ y, 255); }

__global__ void draw(cudaSurfaceObject_t canvas, int w, int h)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h)
        surf2Dwrite(shade(x, y), canvas, x * sizeof(uchar4), y, cudaBoundaryModeTrap);
}

__global__ void present(cudaTextureObject_t view, cudaSurfaceObject_t screen, int w, int h)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    const float4 colour = tex2D<float4>(view, x + 0.5f, y + 0.5f);
    surf2Dwrite(colour.x + 2.0f * colour.y, screen, x * (int)sizeof(float), y);
}

static void host(cudaArray_t array, int w, int h)
{
    cudaResourceDesc what = {};
    what.resType = cudaResourceTypeArray;
    what.res.array.array = array;
    cudaSurfaceObject_t canvas = 0;
    cudaCreateSurfaceObject(&canvas, &what);
    draw<<<dim3((w + 15) / 16, (h + 15) / 16), dim3(16, 16)>>>(canvas, w, h);
    cudaDestroySurfaceObject(canvas);
}
