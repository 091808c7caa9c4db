static void variants()
{
    size_t all = 8192ull * 8192;
#ifdef HALF
    fill<<<1024, 256>>>((__nv_bfloat16 *)A, all, 1); fill<<<1024, 256>>>((__nv_bfloat16 *)B, all, 2);
    for (int z : {1024, 2048, 4096, 8192}) {
        cublas("cublas", 14, 68, z, z, z);
        if (z <= 2048) {
            turn_row<Turn<64, 6, 1, 16>>("turn 64 6 c1 s16", z, z, z);
            turn_row<Turn<64, 8, 1, 16>>("turn 64 8 c1 s16", z, z, z);
            turn_row<Turn<64, 8, 2, 16>>("turn 64 8 c2 s16", z, z, z);
            turn_row<Turn<128, 6, 1, 8>>("turn 128 6 c1 s8", z, z, z);
            turn_row<Turn<128, 6, 2, 8>>("turn 128 6 c2 s8", z, z, z);
            turn_row<Turn<128, 8, 1, 8, 1>>("turn 128 8 c1 s8 g1", z, z, z);
            turn_row<Turn<128, 8, 2, 8, 1>>("turn 128 8 c2 s8 g1", z, z, z);
            turn_row<Turn<256, 5, 1, 8, 1>>("turn 256 5 c1 s8 g1", z, z, z);
        }
        half_row<Half<256, 4, 1, 16, 1>>("half 256 4 c1 s16 e1", z, z, z);
        half_row<Half<256, 4, 2, 8, 1>>("half 256 4 c2 s8 e1", z, z, z);
        half_row<Half<256, 4, 2, 8, 0>>("half 256 4 c2 s8 e0", z, z, z);
        turn_row<Turn<256, 4, 1, 8>>("turn 256 4 c1 s8", z, z, z);
        turn_row<Turn<256, 4, 1, 16>>("turn 256 4 c1 s16", z, z, z);
        turn_row<Turn<256, 4, 2, 8>>("turn 256 4 c2 s8", z, z, z);
        turn_row<Turn<256, 4, 2, 4>>("turn 256 4 c2 s4", z, z, z);
        turn_row<Turn<256, 4, 2, 16>>("turn 256 4 c2 s16", z, z, z);
        turn_row<Turn<256, 4, 2, 8>>("turn 256 4 c2 s8 132", z, z, z, 132);
        turn_row<Turn<256, 4, 4, 8>>("turn 256 4 c4 s8", z, z, z);
        turn_row<Turn<256, 3, 2, 8>>("turn 256 3 c2 s8", z, z, z);
        measure("bfloat16", true, z, z, z, z > 4096 ? 11 : 31);
    }
#endif
#ifdef TF
    fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
    for (int z : {1024, 2048, 4096, 8192}) {
        cublas("cublas-tf32", 0, 77, z, z, z);
        if (z == 1024) {
            tf32_row<Tf<64, 6, 1, 16>>("tf32 64 6 c1 s16", z, z, z);
            tf32_row<Tf<64, 8, 1, 16>>("tf32 64 8 c1 s16", z, z, z);
            tf32_row<Tf<64, 8, 2, 16>>("tf32 64 8 c2 s16", z, z, z);
            tf32_row<Tf<128, 6, 1, 16>>("tf32 128 6 c1 s16", z, z, z);
            tf32_row<Tf<128, 8, 1, 16, 1>>("tf32 128 8 c1 s16 g1", z, z, z);
            tf32_row<Tf<128, 8, 2, 16, 1>>("tf32 128 8 c2 s16 g1", z, z, z);
        } else {
            tf32_row<Tf<256, 4, 1, 8>>("tf32 256 4 c1 s8", z, z, z);
            tf32_row<Tf<256, 4, 1, 16>>("tf32 256 4 c1 s16", z, z, z);
            tf32_row<Tf<256, 4, 2, 8>>("tf32 256 4 c2 s8", z, z, z);
            tf32_row<Tf<256, 4, 2, 4>>("tf32 256 4 c2 s4", z, z, z);
            tf32_row<Tf<256, 4, 2, 16>>("tf32 256 4 c2 s16", z, z, z);
            tf32_row<Tf<256, 4, 4, 8>>("tf32 256 4 c4 s8", z, z, z);
            tf32_row<Tf<256, 4, 2, 8>>("tf32 256 4 c2 s8 132", z, z, z, 132);
        }
        measure("tf32", false, z, z, z, z > 4096 ? 7 : 21);
    }
#endif
#ifdef SPLIT
    fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
    for (int z : {1024, 2048, 4096}) {
        cublas("cublas", 0, 68, z, z, z);
        split_row<Sp<1, 4, 1, 8, 1>>("split 1 4 c1 s8", z, z, z);
        split_row<Sp<1, 4, 1, 16, 1>>("split 1 4 c1 s16", z, z, z);
        split_row<Sp<1, 4, 2, 16, 1>>("split 1 4 c2 s16", z, z, z);
        split_row<Sp<1, 4, 2, 8, 1>>("split 1 4 c2 s8", z, z, z);
        split_row<Sp<1, 4, 2, 16, 2>>("split 1 4 c2 s16 deep 2", z, z, z);
        split_row<Sp<2, 4, 1, 16, 1>>("split 2 4 c1 s16", z, z, z);
        measure("split", false, z, z, z, 15);
    }
#endif
#ifdef SIMT
    fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
    for (int z : {2048, 4096}) {
        cublas("cublas", 0, 68, z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 16, 0, 16, 1>>("16x8 2x4 k16 st3 f0", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 16, 2, 16, 1>>("16x8 2x4 k16 st3 f0 o1", z, z, z);
        simt_row<Simt<16, 8, 4, 2, 8, 4, 8, 3, 16, 1>>("16x8 4x2 k8 st4 f1 o1", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 16, 3, 16, 3, 16, 1>>("16x8 2x4 k16 st3 f1 o1", z, z, z);
        simt_row<Simt<8, 8, 4, 2, 16, 2, 16, 0, 16, 2>>("8x8 4x2 k16 st2 f0 b2", z, z, z);
        simt_row<Simt<8, 8, 4, 2, 16, 2, 16, 2, 16, 2>>("8x8 4x2 k16 st2 f0 o1 b2", z, z, z);
        simt_row<Simt<8, 8, 4, 2, 32, 2, 32, 0, 16, 2>>("8x8 4x2 k32 st2 f0 b2", z, z, z);
        simt_row<Simt<8, 8, 2, 4, 16, 2, 16, 0, 16, 2>>("8x8 2x4 k16 st2 f0 b2", z, z, z);
        simt_row<Simt<16, 8, 2, 2, 16, 3, 16, 0, 16, 2>>("16x8 2x2 k16 st3 f0 b2", z, z, z);
        simt_row<Simt<16, 8, 2, 4, 32, 2, 32, 0, 16, 1>>("16x8 2x4 k32 st2 f0", z, z, z);
        measure("simt", false, z, z, z, 11);
    }
#endif
#ifdef MISC
    fill<<<1024, 256>>>((__nv_bfloat16 *)A, all, 1); fill<<<1024, 256>>>((__nv_bfloat16 *)B, all, 2);
    struct Size { int m, k, n; };
    for (Size z : {Size{5000, 4104, 3000}, Size{4096, 4104, 4096}, Size{4096, 4096, 4104}, Size{5120, 4096, 3072}}) {
        cublas("cublas", 14, 68, z.m, z.k, z.n);
        turn_row<Turn<256, 4, 1, 8>>("turn 256 4 c1 s8", z.m, z.k, z.n);
        turn_row<Turn<256, 4, 2, 8>>("turn 256 4 c2 s8", z.m, z.k, z.n);
        turn_row<Turn<256, 4, 1, 8>>("turn 256 4 c1 s8 132", z.m, z.k, z.n, 132);
        half_row<Half<256, 4, 1, 16, 1>>("half 256 4 c1 s16", z.m, z.k, z.n);
        half_row<Half<256, 4, 2, 8, 1>>("half 256 4 c2 s8", z.m, z.k, z.n);
        measure("bfloat16 m k n", true, z.m, z.k, z.n, 21);
    }
#endif
#ifdef SIMT3
    fill<<<1024, 256>>>((float *)A, all, 1); fill<<<1024, 256>>>((float *)B, all, 2);
    for (int z : {2048, 4096}) {
        cublas("cublas", 0, 68, z, z, z);
        simt2_row<Simt2<16, 8, 2, 4, 3, 1, 0, 1>>("simt2 16x8 2x4 st3", z, z, z);
        simt2_row<Simt2<16, 8, 4, 2, 3, 1, 0, 1>>("simt2 16x8 4x2 st3", z, z, z);
        simt2_row<Simt2<16, 8, 2, 4, 4, 1, 0, 1>>("simt2 16x8 2x4 st4", z, z, z);
        simt2_row<Simt2<16, 8, 2, 2, 3, 1, 0, 2>>("simt2 16x8 2x2 st3 b2", z, z, z);
        simt3_row<Simt3<16, 8, 2, 4, 3, 0, 1, 1>>("simt3 16x8 2x4 o0 u1", z, z, z);
        simt3_row<Simt3<16, 8, 2, 4, 3, 1, 1, 1>>("simt3 16x8 2x4 o1 u1", z, z, z);
        simt3_row<Simt3<16, 8, 2, 4, 3, 0, 7, 1>>("simt3 16x8 2x4 o0 u7", z, z, z);
        simt3_row<Simt3<16, 8, 2, 4, 3, 1, 7, 1>>("simt3 16x8 2x4 o1 u7", z, z, z);
        simt3_row<Simt3<8, 16, 4, 2, 3, 0, 1, 1>>("simt3 8x16 4x2 o0 u1", z, z, z);
        simt3_row<Simt3<8, 16, 4, 2, 3, 0, 7, 1>>("simt3 8x16 4x2 o0 u7", z, z, z);
        measure("simt3", false, z, z, z, 11);
    }
#endif
}
