static void variants()
{
    size_t all = 8192ull * 8192;
#ifdef HALF
    {
        fill<<<1024, 256>>>((__nv_bfloat16 *)A, all, 1); fill<<<1024, 256>>>((__nv_bfloat16 *)B, all, 2);
        for (int z : {1024, 2048, 4096, 8192}) {
            cublas("cublas", 14, 68, z, z, z);
            if (z == 1024) {
                half_row<Half<64, 6, 1, 16, 0>>("half 64 6 c1 s16 e0", z, z, z);
                half_row<Half<64, 6, 1, 16, 1>>("half 64 6 c1 s16 e1", z, z, z);
                half_row<Half<64, 6, 2, 8, 1>>("half 64 6 c2 s8 e1 lead", z, z, z);
                half_row<Half<64, 8, 1, 16, 1>>("half 64 8 c1 s16 e1", z, z, z);
                half_row<Half<128, 6, 1, 16, 1>>("half 128 6 c1 s16 e1", z, z, z);
                half_row<Half<128, 6, 2, 8, 1, 1>>("half 128 6 c2 s8 e1 g1", z, z, z);
                half_row<Half<128, 6, 1, 8, 1, 1>>("half 128 6 c1 s8 e1 g1", z, z, z);
            } else {
                half_row<Half<256, 4, 1, 16, 0>>("half 256 4 c1 s16 e0", z, z, z);
                half_row<Half<256, 4, 1, 16, 1>>("half 256 4 c1 s16 e1", z, z, z);
                half_row<Half<256, 4, 2, 8, 0>>("half 256 4 c2 s8 e0", z, z, z);
                half_row<Half<256, 4, 2, 8, 1>>("half 256 4 c2 s8 e1", z, z, z);
                half_row<Half<256, 3, 2, 8, 1>>("half 256 3 c2 s8 e1", z, z, z);
                half_row<Half<256, 4, 2, 4, 1>>("half 256 4 c2 s4 e1", z, z, z);
                half_row<Half<256, 4, 2, 16, 1>>("half 256 4 c2 s16 e1", z, z, z);
                half_row<Half<256, 4, 2, 8, 1>>("half 256 4 c2 s8 e1 132", z, z, z, 132);
                half_row<Half<256, 4, 4, 4, 1>>("half 256 4 c4 s4 e1", z, z, z);
                half_row<Half<128, 6, 2, 8, 1>>("half 128 6 c2 s8 e1", z, z, z);
            }
            measure("bfloat16", true, z, z, z, z > 4096 ? 15 : 41);
        }
    }
#endif
#ifdef TF
    {
        fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
        for (int z : {1024, 2048, 4096, 8192}) {
            cublas("cublas-tf32", 0, 77, z, z, z);
            if (z == 1024) {
                tf32_row<Tf<64, 6, 1, 16>>("tf32 64 6 c1 s16", z, z, z);
                tf32_row<Tf<64, 8, 1, 16>>("tf32 64 8 c1 s16", z, z, z);
                tf32_row<Tf<64, 6, 2, 16>>("tf32 64 6 c2 s16", z, z, z);
                tf32_row<Tf<128, 6, 1, 16>>("tf32 128 6 c1 s16", z, z, z);
                tf32_row<Tf<128, 8, 1, 16, 1>>("tf32 128 8 c1 s16 g1", z, z, z);
            } else {
                tf32_row<Tf<256, 4, 1, 16>>("tf32 256 4 c1 s16", z, z, z);
                tf32_row<Tf<256, 4, 2, 8>>("tf32 256 4 c2 s8", z, z, z);
                tf32_row<Tf<256, 3, 2, 8>>("tf32 256 3 c2 s8", z, z, z);
                tf32_row<Tf<256, 4, 2, 4>>("tf32 256 4 c2 s4", z, z, z);
                tf32_row<Tf<256, 4, 2, 16>>("tf32 256 4 c2 s16", z, z, z);
                tf32_row<Tf<256, 4, 4, 8>>("tf32 256 4 c4 s8", z, z, z);
                tf32_row<Tf<128, 6, 2, 8>>("tf32 128 6 c2 s8", z, z, z);
            }
            measure("tf32", false, z, z, z, z > 4096 ? 11 : 31);
        }
    }
#endif
#ifdef SPLIT
    {
        fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
        for (int z : {1024, 2048, 4096, 8192}) {
            cublas("cublas", 0, 68, z, z, z);
            split_row<Sp<1, 4, 1, 16, 1>>("split 1 4 c1 s16", z, z, z);
            split_row<Sp<1, 4, 2, 16, 1>>("split 1 4 c2 s16", z, z, z);
            split_row<Sp<1, 4, 2, 16, 2>>("split 1 4 c2 s16 deep 2", z, z, z);
            split_row<Sp<1, 4, 2, 16, 4>>("split 1 4 c2 s16 deep 4", z, z, z);
            split_row<Sp<2, 4, 1, 16, 1>>("split 2 4 c1 s16", z, z, z);
            split_row<Sp<2, 4, 2, 16, 1>>("split 2 4 c2 s16", z, z, z);
            split_row<Sp<2, 3, 2, 16, 1>>("split 2 3 c2 s16", z, z, z);
            measure("split", false, z, z, z, z > 4096 ? 7 : 21);
        }
    }
#endif
#ifdef SIMT
    fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
    for (int z : {2048, 4096, 8192}) {
        cublas("cublas", 0, 68, z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 16, 0, 1024>>("16x8 2x4 k16 st3 u16 f0", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 16, 0, 8>>("16x8 2x4 k16 st3 u16 f0 strip 8", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 8, 4, 8, 0, 8>>("16x8 2x4 k8 st4 u8 f0", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 4, 0, 8>>("16x8 2x4 k16 st3 u4 f0", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 2, 0, 8>>("16x8 2x4 k16 st3 u2 f0", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 16, 1, 8>>("16x8 2x4 k16 st3 u16 f1", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 4, 1, 8>>("16x8 2x4 k16 st3 u4 f1", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 8, 4, 8, 1, 8>>("16x8 2x4 k8 st4 u8 f1", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 8, 3, 8, 1, 8>>("16x8 2x4 k8 st3 u8 f1", z, z, z);
        simt_row<Simt<16, 8, 4, 2, 8, 4, 8, 1, 8>>("16x8 4x2 k8 st4 u8 f1", z, z, z);
        simt_row<Simt<8, 8, 4, 2, 8, 3, 8, 1, 8, 2>>("8x8 4x2 k8 st3 u8 f1 b2", z, z, z);
        simt_row<Simt<8, 8, 4, 2, 16, 3, 16, 0, 8, 2>>("8x8 4x2 k16 st3 u16 f0 b2", z, z, z);
        simt_row<Simt<16, 8, 2, 2, 8, 3, 8, 1, 8, 2>>("16x8 2x2 k8 st3 u8 f1 b2", z, z, z);
        measure("simt", false, z, z, z, z > 4096 ? 5 : 15);
    }
#endif
}
