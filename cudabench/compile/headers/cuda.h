// The declarations of cuda.h that kernels use.
#pragma once
typedef struct __align__(128) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef struct CUstream_st *CUstream;
typedef struct CUctx_st *CUcontext;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmod_st *CUmodule;
typedef struct CUevent_st *CUevent;
typedef int CUdevice;
