#pragma once
struct __half { unsigned short bits; };
struct __attribute__((aligned(4))) __half2 { __half x, y; };
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
