// What the programs of these tests check: a line for each failure, and how many there were.
#pragma once
#include <cstdio>
#include <cuda_runtime.h>

#define C(x)                                                                                                           \
    do {                                                                                                               \
        cudaError_t e = (x);                                                                                           \
        if (e) {                                                                                                       \
            printf("FAIL line %d: %s %s\n", __LINE__, #x, cudaGetErrorName(e));                                        \
            failed++;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define WANT(x, e)                                                                                                     \
    do {                                                                                                               \
        cudaError_t g = (x);                                                                                           \
        if (g != e) {                                                                                                  \
            printf("FAIL line %d: %s gives %d\n", __LINE__, #x, g);                                                    \
            failed++;                                                                                                  \
        }                                                                                                              \
        cudaGetLastError();                                                                                            \
    } while (0)
#define T(x)                                                                                                           \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            printf("FAIL line %d: %s\n", __LINE__, #x);                                                                \
            failed++;                                                                                                  \
        }                                                                                                              \
    } while (0)
static int failed;
