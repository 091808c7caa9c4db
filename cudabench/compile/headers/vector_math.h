// Replaces helper_math.h of NVIDIA's samples, and the older cutil_math.h, if they are missing. It has arithmetic on
// CUDA's vector types, as kernels of the samples and of programs based on them use it. The text is written anew; only
// the names of the functions are the same.
#pragma once
typedef unsigned int uint;
typedef unsigned short ushort;
#define CUDABENCH_BOTH static inline __host__ __device__
CUDABENCH_BOTH float lerp(float a, float b, float t) { return a + t*(b-a); }
CUDABENCH_BOTH float fracf(float v) { return v - floorf(v); }

// float2
CUDABENCH_BOTH float clamp(float v, float low, float high) { return fmaxf(low, fminf(v, high)); }
CUDABENCH_BOTH float2 operator+(float2 a, float2 b) { return make_float2(a.x+b.x, a.y+b.y); }
CUDABENCH_BOTH float2 operator+(float2 a, float b) { return make_float2(a.x+b, a.y+b); }
CUDABENCH_BOTH float2 operator+(float a, float2 b) { return make_float2(a+b.x, a+b.y); }
CUDABENCH_BOTH void operator+=(float2 &a, float2 b) { a.x+=b.x; a.y+=b.y; }
CUDABENCH_BOTH void operator+=(float2 &a, float b) { a.x+=b; a.y+=b; }
CUDABENCH_BOTH float2 operator-(float2 a, float2 b) { return make_float2(a.x-b.x, a.y-b.y); }
CUDABENCH_BOTH float2 operator-(float2 a, float b) { return make_float2(a.x-b, a.y-b); }
CUDABENCH_BOTH float2 operator-(float a, float2 b) { return make_float2(a-b.x, a-b.y); }
CUDABENCH_BOTH void operator-=(float2 &a, float2 b) { a.x-=b.x; a.y-=b.y; }
CUDABENCH_BOTH void operator-=(float2 &a, float b) { a.x-=b; a.y-=b; }
CUDABENCH_BOTH float2 operator*(float2 a, float2 b) { return make_float2(a.x*b.x, a.y*b.y); }
CUDABENCH_BOTH float2 operator*(float2 a, float b) { return make_float2(a.x*b, a.y*b); }
CUDABENCH_BOTH float2 operator*(float a, float2 b) { return make_float2(a*b.x, a*b.y); }
CUDABENCH_BOTH void operator*=(float2 &a, float2 b) { a.x*=b.x; a.y*=b.y; }
CUDABENCH_BOTH void operator*=(float2 &a, float b) { a.x*=b; a.y*=b; }
CUDABENCH_BOTH float2 operator/(float2 a, float2 b) { return make_float2(a.x/b.x, a.y/b.y); }
CUDABENCH_BOTH float2 operator/(float2 a, float b) { return make_float2(a.x/b, a.y/b); }
CUDABENCH_BOTH float2 operator/(float a, float2 b) { return make_float2(a/b.x, a/b.y); }
CUDABENCH_BOTH void operator/=(float2 &a, float2 b) { a.x/=b.x; a.y/=b.y; }
CUDABENCH_BOTH void operator/=(float2 &a, float b) { a.x/=b; a.y/=b; }
CUDABENCH_BOTH float2 operator-(float2 a) { return make_float2(-a.x, -a.y); }
CUDABENCH_BOTH float2 make_float2(float s) { return make_float2(s, s); }
CUDABENCH_BOTH float2 fminf(float2 a, float2 b) { return make_float2(fminf(a.x, b.x), fminf(a.y, b.y)); }
CUDABENCH_BOTH float2 fmaxf(float2 a, float2 b) { return make_float2(fmaxf(a.x, b.x), fmaxf(a.y, b.y)); }
CUDABENCH_BOTH float2 clamp(float2 v, float low, float high) {
    return make_float2(clamp(v.x, low, high), clamp(v.y, low, high));
}
CUDABENCH_BOTH float2 clamp(float2 v, float2 low, float2 high) {
    return make_float2(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y));
}
CUDABENCH_BOTH float dot(float2 a, float2 b) { return a.x*b.x+a.y*b.y; }

// float3
CUDABENCH_BOTH float3 operator+(float3 a, float3 b) { return make_float3(a.x+b.x, a.y+b.y, a.z+b.z); }
CUDABENCH_BOTH float3 operator+(float3 a, float b) { return make_float3(a.x+b, a.y+b, a.z+b); }
CUDABENCH_BOTH float3 operator+(float a, float3 b) { return make_float3(a+b.x, a+b.y, a+b.z); }
CUDABENCH_BOTH void operator+=(float3 &a, float3 b) { a.x+=b.x; a.y+=b.y; a.z+=b.z; }
CUDABENCH_BOTH void operator+=(float3 &a, float b) { a.x+=b; a.y+=b; a.z+=b; }
CUDABENCH_BOTH float3 operator-(float3 a, float3 b) { return make_float3(a.x-b.x, a.y-b.y, a.z-b.z); }
CUDABENCH_BOTH float3 operator-(float3 a, float b) { return make_float3(a.x-b, a.y-b, a.z-b); }
CUDABENCH_BOTH float3 operator-(float a, float3 b) { return make_float3(a-b.x, a-b.y, a-b.z); }
CUDABENCH_BOTH void operator-=(float3 &a, float3 b) { a.x-=b.x; a.y-=b.y; a.z-=b.z; }
CUDABENCH_BOTH void operator-=(float3 &a, float b) { a.x-=b; a.y-=b; a.z-=b; }
CUDABENCH_BOTH float3 operator*(float3 a, float3 b) { return make_float3(a.x*b.x, a.y*b.y, a.z*b.z); }
CUDABENCH_BOTH float3 operator*(float3 a, float b) { return make_float3(a.x*b, a.y*b, a.z*b); }
CUDABENCH_BOTH float3 operator*(float a, float3 b) { return make_float3(a*b.x, a*b.y, a*b.z); }
CUDABENCH_BOTH void operator*=(float3 &a, float3 b) { a.x*=b.x; a.y*=b.y; a.z*=b.z; }
CUDABENCH_BOTH void operator*=(float3 &a, float b) { a.x*=b; a.y*=b; a.z*=b; }
CUDABENCH_BOTH float3 operator/(float3 a, float3 b) { return make_float3(a.x/b.x, a.y/b.y, a.z/b.z); }
CUDABENCH_BOTH float3 operator/(float3 a, float b) { return make_float3(a.x/b, a.y/b, a.z/b); }
CUDABENCH_BOTH float3 operator/(float a, float3 b) { return make_float3(a/b.x, a/b.y, a/b.z); }
CUDABENCH_BOTH void operator/=(float3 &a, float3 b) { a.x/=b.x; a.y/=b.y; a.z/=b.z; }
CUDABENCH_BOTH void operator/=(float3 &a, float b) { a.x/=b; a.y/=b; a.z/=b; }
CUDABENCH_BOTH float3 operator-(float3 a) { return make_float3(-a.x, -a.y, -a.z); }
CUDABENCH_BOTH float3 make_float3(float s) { return make_float3(s, s, s); }
CUDABENCH_BOTH float3 fminf(float3 a, float3 b) { return make_float3(fminf(a.x, b.x), fminf(a.y, b.y), fminf(a.z, b.z)); }
CUDABENCH_BOTH float3 fmaxf(float3 a, float3 b) { return make_float3(fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z)); }
CUDABENCH_BOTH float3 clamp(float3 v, float low, float high) {
    return make_float3(clamp(v.x, low, high), clamp(v.y, low, high), clamp(v.z, low, high));
}
CUDABENCH_BOTH float3 clamp(float3 v, float3 low, float3 high) {
    return make_float3(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y), clamp(v.z, low.z, high.z));
}
CUDABENCH_BOTH float dot(float3 a, float3 b) { return a.x*b.x+a.y*b.y+a.z*b.z; }

// float4
CUDABENCH_BOTH float4 operator+(float4 a, float4 b) { return make_float4(a.x+b.x, a.y+b.y, a.z+b.z, a.w+b.w); }
CUDABENCH_BOTH float4 operator+(float4 a, float b) { return make_float4(a.x+b, a.y+b, a.z+b, a.w+b); }
CUDABENCH_BOTH float4 operator+(float a, float4 b) { return make_float4(a+b.x, a+b.y, a+b.z, a+b.w); }
CUDABENCH_BOTH void operator+=(float4 &a, float4 b) { a.x+=b.x; a.y+=b.y; a.z+=b.z; a.w+=b.w; }
CUDABENCH_BOTH void operator+=(float4 &a, float b) { a.x+=b; a.y+=b; a.z+=b; a.w+=b; }
CUDABENCH_BOTH float4 operator-(float4 a, float4 b) { return make_float4(a.x-b.x, a.y-b.y, a.z-b.z, a.w-b.w); }
CUDABENCH_BOTH float4 operator-(float4 a, float b) { return make_float4(a.x-b, a.y-b, a.z-b, a.w-b); }
CUDABENCH_BOTH float4 operator-(float a, float4 b) { return make_float4(a-b.x, a-b.y, a-b.z, a-b.w); }
CUDABENCH_BOTH void operator-=(float4 &a, float4 b) { a.x-=b.x; a.y-=b.y; a.z-=b.z; a.w-=b.w; }
CUDABENCH_BOTH void operator-=(float4 &a, float b) { a.x-=b; a.y-=b; a.z-=b; a.w-=b; }
CUDABENCH_BOTH float4 operator*(float4 a, float4 b) { return make_float4(a.x*b.x, a.y*b.y, a.z*b.z, a.w*b.w); }
CUDABENCH_BOTH float4 operator*(float4 a, float b) { return make_float4(a.x*b, a.y*b, a.z*b, a.w*b); }
CUDABENCH_BOTH float4 operator*(float a, float4 b) { return make_float4(a*b.x, a*b.y, a*b.z, a*b.w); }
CUDABENCH_BOTH void operator*=(float4 &a, float4 b) { a.x*=b.x; a.y*=b.y; a.z*=b.z; a.w*=b.w; }
CUDABENCH_BOTH void operator*=(float4 &a, float b) { a.x*=b; a.y*=b; a.z*=b; a.w*=b; }
CUDABENCH_BOTH float4 operator/(float4 a, float4 b) { return make_float4(a.x/b.x, a.y/b.y, a.z/b.z, a.w/b.w); }
CUDABENCH_BOTH float4 operator/(float4 a, float b) { return make_float4(a.x/b, a.y/b, a.z/b, a.w/b); }
CUDABENCH_BOTH float4 operator/(float a, float4 b) { return make_float4(a/b.x, a/b.y, a/b.z, a/b.w); }
CUDABENCH_BOTH void operator/=(float4 &a, float4 b) { a.x/=b.x; a.y/=b.y; a.z/=b.z; a.w/=b.w; }
CUDABENCH_BOTH void operator/=(float4 &a, float b) { a.x/=b; a.y/=b; a.z/=b; a.w/=b; }
CUDABENCH_BOTH float4 operator-(float4 a) { return make_float4(-a.x, -a.y, -a.z, -a.w); }
CUDABENCH_BOTH float4 make_float4(float s) { return make_float4(s, s, s, s); }
CUDABENCH_BOTH float4 fminf(float4 a, float4 b) {
    return make_float4(fminf(a.x, b.x), fminf(a.y, b.y), fminf(a.z, b.z), fminf(a.w, b.w));
}
CUDABENCH_BOTH float4 fmaxf(float4 a, float4 b) {
    return make_float4(fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w));
}
CUDABENCH_BOTH float4 clamp(float4 v, float low, float high) {
    return make_float4(clamp(v.x, low, high), clamp(v.y, low, high), clamp(v.z, low, high), clamp(v.w, low, high));
}
CUDABENCH_BOTH float4 clamp(float4 v, float4 low, float4 high) {
    return make_float4(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y), clamp(v.z, low.z, high.z), clamp(v.w, low.w, high.w));
}
CUDABENCH_BOTH float dot(float4 a, float4 b) { return a.x*b.x+a.y*b.y+a.z*b.z+a.w*b.w; }

// constructors of float vectors from shorter or longer vectors of float
CUDABENCH_BOTH float2 make_float2(float3 v) { return make_float2(v.x, v.y); }
CUDABENCH_BOTH float2 make_float2(float4 v) { return make_float2(v.x, v.y); }
CUDABENCH_BOTH float3 make_float3(float2 v) { return make_float3(v.x, v.y, 0); }
CUDABENCH_BOTH float3 make_float3(float2 v, float s) { return make_float3(v.x, v.y, s); }
CUDABENCH_BOTH float3 make_float3(float4 v) { return make_float3(v.x, v.y, v.z); }
CUDABENCH_BOTH float4 make_float4(float3 v) { return make_float4(v.x, v.y, v.z, 0); }
CUDABENCH_BOTH float4 make_float4(float3 v, float s) { return make_float4(v.x, v.y, v.z, s); }

// int2
CUDABENCH_BOTH int clamp(int v, int low, int high) { return max(low, min(v, high)); }
CUDABENCH_BOTH int2 operator+(int2 a, int2 b) { return make_int2(a.x+b.x, a.y+b.y); }
CUDABENCH_BOTH int2 operator+(int2 a, int b) { return make_int2(a.x+b, a.y+b); }
CUDABENCH_BOTH int2 operator+(int a, int2 b) { return make_int2(a+b.x, a+b.y); }
CUDABENCH_BOTH void operator+=(int2 &a, int2 b) { a.x+=b.x; a.y+=b.y; }
CUDABENCH_BOTH void operator+=(int2 &a, int b) { a.x+=b; a.y+=b; }
CUDABENCH_BOTH int2 operator-(int2 a, int2 b) { return make_int2(a.x-b.x, a.y-b.y); }
CUDABENCH_BOTH int2 operator-(int2 a, int b) { return make_int2(a.x-b, a.y-b); }
CUDABENCH_BOTH int2 operator-(int a, int2 b) { return make_int2(a-b.x, a-b.y); }
CUDABENCH_BOTH void operator-=(int2 &a, int2 b) { a.x-=b.x; a.y-=b.y; }
CUDABENCH_BOTH void operator-=(int2 &a, int b) { a.x-=b; a.y-=b; }
CUDABENCH_BOTH int2 operator*(int2 a, int2 b) { return make_int2(a.x*b.x, a.y*b.y); }
CUDABENCH_BOTH int2 operator*(int2 a, int b) { return make_int2(a.x*b, a.y*b); }
CUDABENCH_BOTH int2 operator*(int a, int2 b) { return make_int2(a*b.x, a*b.y); }
CUDABENCH_BOTH void operator*=(int2 &a, int2 b) { a.x*=b.x; a.y*=b.y; }
CUDABENCH_BOTH void operator*=(int2 &a, int b) { a.x*=b; a.y*=b; }
CUDABENCH_BOTH int2 operator-(int2 a) { return make_int2(-a.x, -a.y); }
CUDABENCH_BOTH int2 make_int2(int s) { return make_int2(s, s); }
CUDABENCH_BOTH int2 min(int2 a, int2 b) { return make_int2(min(a.x, b.x), min(a.y, b.y)); }
CUDABENCH_BOTH int2 max(int2 a, int2 b) { return make_int2(max(a.x, b.x), max(a.y, b.y)); }
CUDABENCH_BOTH int2 clamp(int2 v, int low, int high) { return make_int2(clamp(v.x, low, high), clamp(v.y, low, high)); }
CUDABENCH_BOTH int2 clamp(int2 v, int2 low, int2 high) {
    return make_int2(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y));
}
CUDABENCH_BOTH int dot(int2 a, int2 b) { return a.x*b.x+a.y*b.y; }

// int3
CUDABENCH_BOTH int3 operator+(int3 a, int3 b) { return make_int3(a.x+b.x, a.y+b.y, a.z+b.z); }
CUDABENCH_BOTH int3 operator+(int3 a, int b) { return make_int3(a.x+b, a.y+b, a.z+b); }
CUDABENCH_BOTH int3 operator+(int a, int3 b) { return make_int3(a+b.x, a+b.y, a+b.z); }
CUDABENCH_BOTH void operator+=(int3 &a, int3 b) { a.x+=b.x; a.y+=b.y; a.z+=b.z; }
CUDABENCH_BOTH void operator+=(int3 &a, int b) { a.x+=b; a.y+=b; a.z+=b; }
CUDABENCH_BOTH int3 operator-(int3 a, int3 b) { return make_int3(a.x-b.x, a.y-b.y, a.z-b.z); }
CUDABENCH_BOTH int3 operator-(int3 a, int b) { return make_int3(a.x-b, a.y-b, a.z-b); }
CUDABENCH_BOTH int3 operator-(int a, int3 b) { return make_int3(a-b.x, a-b.y, a-b.z); }
CUDABENCH_BOTH void operator-=(int3 &a, int3 b) { a.x-=b.x; a.y-=b.y; a.z-=b.z; }
CUDABENCH_BOTH void operator-=(int3 &a, int b) { a.x-=b; a.y-=b; a.z-=b; }
CUDABENCH_BOTH int3 operator*(int3 a, int3 b) { return make_int3(a.x*b.x, a.y*b.y, a.z*b.z); }
CUDABENCH_BOTH int3 operator*(int3 a, int b) { return make_int3(a.x*b, a.y*b, a.z*b); }
CUDABENCH_BOTH int3 operator*(int a, int3 b) { return make_int3(a*b.x, a*b.y, a*b.z); }
CUDABENCH_BOTH void operator*=(int3 &a, int3 b) { a.x*=b.x; a.y*=b.y; a.z*=b.z; }
CUDABENCH_BOTH void operator*=(int3 &a, int b) { a.x*=b; a.y*=b; a.z*=b; }
CUDABENCH_BOTH int3 operator-(int3 a) { return make_int3(-a.x, -a.y, -a.z); }
CUDABENCH_BOTH int3 make_int3(int s) { return make_int3(s, s, s); }
CUDABENCH_BOTH int3 min(int3 a, int3 b) { return make_int3(min(a.x, b.x), min(a.y, b.y), min(a.z, b.z)); }
CUDABENCH_BOTH int3 max(int3 a, int3 b) { return make_int3(max(a.x, b.x), max(a.y, b.y), max(a.z, b.z)); }
CUDABENCH_BOTH int3 clamp(int3 v, int low, int high) {
    return make_int3(clamp(v.x, low, high), clamp(v.y, low, high), clamp(v.z, low, high));
}
CUDABENCH_BOTH int3 clamp(int3 v, int3 low, int3 high) {
    return make_int3(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y), clamp(v.z, low.z, high.z));
}
CUDABENCH_BOTH int dot(int3 a, int3 b) { return a.x*b.x+a.y*b.y+a.z*b.z; }

// int4
CUDABENCH_BOTH int4 operator+(int4 a, int4 b) { return make_int4(a.x+b.x, a.y+b.y, a.z+b.z, a.w+b.w); }
CUDABENCH_BOTH int4 operator+(int4 a, int b) { return make_int4(a.x+b, a.y+b, a.z+b, a.w+b); }
CUDABENCH_BOTH int4 operator+(int a, int4 b) { return make_int4(a+b.x, a+b.y, a+b.z, a+b.w); }
CUDABENCH_BOTH void operator+=(int4 &a, int4 b) { a.x+=b.x; a.y+=b.y; a.z+=b.z; a.w+=b.w; }
CUDABENCH_BOTH void operator+=(int4 &a, int b) { a.x+=b; a.y+=b; a.z+=b; a.w+=b; }
CUDABENCH_BOTH int4 operator-(int4 a, int4 b) { return make_int4(a.x-b.x, a.y-b.y, a.z-b.z, a.w-b.w); }
CUDABENCH_BOTH int4 operator-(int4 a, int b) { return make_int4(a.x-b, a.y-b, a.z-b, a.w-b); }
CUDABENCH_BOTH int4 operator-(int a, int4 b) { return make_int4(a-b.x, a-b.y, a-b.z, a-b.w); }
CUDABENCH_BOTH void operator-=(int4 &a, int4 b) { a.x-=b.x; a.y-=b.y; a.z-=b.z; a.w-=b.w; }
CUDABENCH_BOTH void operator-=(int4 &a, int b) { a.x-=b; a.y-=b; a.z-=b; a.w-=b; }
CUDABENCH_BOTH int4 operator*(int4 a, int4 b) { return make_int4(a.x*b.x, a.y*b.y, a.z*b.z, a.w*b.w); }
CUDABENCH_BOTH int4 operator*(int4 a, int b) { return make_int4(a.x*b, a.y*b, a.z*b, a.w*b); }
CUDABENCH_BOTH int4 operator*(int a, int4 b) { return make_int4(a*b.x, a*b.y, a*b.z, a*b.w); }
CUDABENCH_BOTH void operator*=(int4 &a, int4 b) { a.x*=b.x; a.y*=b.y; a.z*=b.z; a.w*=b.w; }
CUDABENCH_BOTH void operator*=(int4 &a, int b) { a.x*=b; a.y*=b; a.z*=b; a.w*=b; }
CUDABENCH_BOTH int4 operator-(int4 a) { return make_int4(-a.x, -a.y, -a.z, -a.w); }
CUDABENCH_BOTH int4 make_int4(int s) { return make_int4(s, s, s, s); }
CUDABENCH_BOTH int4 min(int4 a, int4 b) { return make_int4(min(a.x, b.x), min(a.y, b.y), min(a.z, b.z), min(a.w, b.w)); }
CUDABENCH_BOTH int4 max(int4 a, int4 b) { return make_int4(max(a.x, b.x), max(a.y, b.y), max(a.z, b.z), max(a.w, b.w)); }
CUDABENCH_BOTH int4 clamp(int4 v, int low, int high) {
    return make_int4(clamp(v.x, low, high), clamp(v.y, low, high), clamp(v.z, low, high), clamp(v.w, low, high));
}
CUDABENCH_BOTH int4 clamp(int4 v, int4 low, int4 high) {
    return make_int4(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y), clamp(v.z, low.z, high.z), clamp(v.w, low.w, high.w));
}
CUDABENCH_BOTH int dot(int4 a, int4 b) { return a.x*b.x+a.y*b.y+a.z*b.z+a.w*b.w; }

// constructors of int vectors from shorter or longer vectors of int
CUDABENCH_BOTH int2 make_int2(int3 v) { return make_int2(v.x, v.y); }
CUDABENCH_BOTH int2 make_int2(int4 v) { return make_int2(v.x, v.y); }
CUDABENCH_BOTH int3 make_int3(int2 v) { return make_int3(v.x, v.y, 0); }
CUDABENCH_BOTH int3 make_int3(int2 v, int s) { return make_int3(v.x, v.y, s); }
CUDABENCH_BOTH int3 make_int3(int4 v) { return make_int3(v.x, v.y, v.z); }
CUDABENCH_BOTH int4 make_int4(int3 v) { return make_int4(v.x, v.y, v.z, 0); }
CUDABENCH_BOTH int4 make_int4(int3 v, int s) { return make_int4(v.x, v.y, v.z, s); }

// uint2
CUDABENCH_BOTH unsigned int clamp(unsigned int v, unsigned int low, unsigned int high) { return max(low, min(v, high)); }
CUDABENCH_BOTH uint2 operator+(uint2 a, uint2 b) { return make_uint2(a.x+b.x, a.y+b.y); }
CUDABENCH_BOTH uint2 operator+(uint2 a, unsigned int b) { return make_uint2(a.x+b, a.y+b); }
CUDABENCH_BOTH uint2 operator+(unsigned int a, uint2 b) { return make_uint2(a+b.x, a+b.y); }
CUDABENCH_BOTH void operator+=(uint2 &a, uint2 b) { a.x+=b.x; a.y+=b.y; }
CUDABENCH_BOTH void operator+=(uint2 &a, unsigned int b) { a.x+=b; a.y+=b; }
CUDABENCH_BOTH uint2 operator-(uint2 a, uint2 b) { return make_uint2(a.x-b.x, a.y-b.y); }
CUDABENCH_BOTH uint2 operator-(uint2 a, unsigned int b) { return make_uint2(a.x-b, a.y-b); }
CUDABENCH_BOTH uint2 operator-(unsigned int a, uint2 b) { return make_uint2(a-b.x, a-b.y); }
CUDABENCH_BOTH void operator-=(uint2 &a, uint2 b) { a.x-=b.x; a.y-=b.y; }
CUDABENCH_BOTH void operator-=(uint2 &a, unsigned int b) { a.x-=b; a.y-=b; }
CUDABENCH_BOTH uint2 operator*(uint2 a, uint2 b) { return make_uint2(a.x*b.x, a.y*b.y); }
CUDABENCH_BOTH uint2 operator*(uint2 a, unsigned int b) { return make_uint2(a.x*b, a.y*b); }
CUDABENCH_BOTH uint2 operator*(unsigned int a, uint2 b) { return make_uint2(a*b.x, a*b.y); }
CUDABENCH_BOTH void operator*=(uint2 &a, uint2 b) { a.x*=b.x; a.y*=b.y; }
CUDABENCH_BOTH void operator*=(uint2 &a, unsigned int b) { a.x*=b; a.y*=b; }
CUDABENCH_BOTH uint2 make_uint2(unsigned int s) { return make_uint2(s, s); }
CUDABENCH_BOTH uint2 min(uint2 a, uint2 b) { return make_uint2(min(a.x, b.x), min(a.y, b.y)); }
CUDABENCH_BOTH uint2 max(uint2 a, uint2 b) { return make_uint2(max(a.x, b.x), max(a.y, b.y)); }
CUDABENCH_BOTH uint2 clamp(uint2 v, unsigned int low, unsigned int high) {
    return make_uint2(clamp(v.x, low, high), clamp(v.y, low, high));
}
CUDABENCH_BOTH uint2 clamp(uint2 v, uint2 low, uint2 high) {
    return make_uint2(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y));
}
CUDABENCH_BOTH unsigned int dot(uint2 a, uint2 b) { return a.x*b.x+a.y*b.y; }

// uint3
CUDABENCH_BOTH uint3 operator+(uint3 a, uint3 b) { return make_uint3(a.x+b.x, a.y+b.y, a.z+b.z); }
CUDABENCH_BOTH uint3 operator+(uint3 a, unsigned int b) { return make_uint3(a.x+b, a.y+b, a.z+b); }
CUDABENCH_BOTH uint3 operator+(unsigned int a, uint3 b) { return make_uint3(a+b.x, a+b.y, a+b.z); }
CUDABENCH_BOTH void operator+=(uint3 &a, uint3 b) { a.x+=b.x; a.y+=b.y; a.z+=b.z; }
CUDABENCH_BOTH void operator+=(uint3 &a, unsigned int b) { a.x+=b; a.y+=b; a.z+=b; }
CUDABENCH_BOTH uint3 operator-(uint3 a, uint3 b) { return make_uint3(a.x-b.x, a.y-b.y, a.z-b.z); }
CUDABENCH_BOTH uint3 operator-(uint3 a, unsigned int b) { return make_uint3(a.x-b, a.y-b, a.z-b); }
CUDABENCH_BOTH uint3 operator-(unsigned int a, uint3 b) { return make_uint3(a-b.x, a-b.y, a-b.z); }
CUDABENCH_BOTH void operator-=(uint3 &a, uint3 b) { a.x-=b.x; a.y-=b.y; a.z-=b.z; }
CUDABENCH_BOTH void operator-=(uint3 &a, unsigned int b) { a.x-=b; a.y-=b; a.z-=b; }
CUDABENCH_BOTH uint3 operator*(uint3 a, uint3 b) { return make_uint3(a.x*b.x, a.y*b.y, a.z*b.z); }
CUDABENCH_BOTH uint3 operator*(uint3 a, unsigned int b) { return make_uint3(a.x*b, a.y*b, a.z*b); }
CUDABENCH_BOTH uint3 operator*(unsigned int a, uint3 b) { return make_uint3(a*b.x, a*b.y, a*b.z); }
CUDABENCH_BOTH void operator*=(uint3 &a, uint3 b) { a.x*=b.x; a.y*=b.y; a.z*=b.z; }
CUDABENCH_BOTH void operator*=(uint3 &a, unsigned int b) { a.x*=b; a.y*=b; a.z*=b; }
CUDABENCH_BOTH uint3 make_uint3(unsigned int s) { return make_uint3(s, s, s); }
CUDABENCH_BOTH uint3 min(uint3 a, uint3 b) { return make_uint3(min(a.x, b.x), min(a.y, b.y), min(a.z, b.z)); }
CUDABENCH_BOTH uint3 max(uint3 a, uint3 b) { return make_uint3(max(a.x, b.x), max(a.y, b.y), max(a.z, b.z)); }
CUDABENCH_BOTH uint3 clamp(uint3 v, unsigned int low, unsigned int high) {
    return make_uint3(clamp(v.x, low, high), clamp(v.y, low, high), clamp(v.z, low, high));
}
CUDABENCH_BOTH uint3 clamp(uint3 v, uint3 low, uint3 high) {
    return make_uint3(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y), clamp(v.z, low.z, high.z));
}
CUDABENCH_BOTH unsigned int dot(uint3 a, uint3 b) { return a.x*b.x+a.y*b.y+a.z*b.z; }

// uint4
CUDABENCH_BOTH uint4 operator+(uint4 a, uint4 b) { return make_uint4(a.x+b.x, a.y+b.y, a.z+b.z, a.w+b.w); }
CUDABENCH_BOTH uint4 operator+(uint4 a, unsigned int b) { return make_uint4(a.x+b, a.y+b, a.z+b, a.w+b); }
CUDABENCH_BOTH uint4 operator+(unsigned int a, uint4 b) { return make_uint4(a+b.x, a+b.y, a+b.z, a+b.w); }
CUDABENCH_BOTH void operator+=(uint4 &a, uint4 b) { a.x+=b.x; a.y+=b.y; a.z+=b.z; a.w+=b.w; }
CUDABENCH_BOTH void operator+=(uint4 &a, unsigned int b) { a.x+=b; a.y+=b; a.z+=b; a.w+=b; }
CUDABENCH_BOTH uint4 operator-(uint4 a, uint4 b) { return make_uint4(a.x-b.x, a.y-b.y, a.z-b.z, a.w-b.w); }
CUDABENCH_BOTH uint4 operator-(uint4 a, unsigned int b) { return make_uint4(a.x-b, a.y-b, a.z-b, a.w-b); }
CUDABENCH_BOTH uint4 operator-(unsigned int a, uint4 b) { return make_uint4(a-b.x, a-b.y, a-b.z, a-b.w); }
CUDABENCH_BOTH void operator-=(uint4 &a, uint4 b) { a.x-=b.x; a.y-=b.y; a.z-=b.z; a.w-=b.w; }
CUDABENCH_BOTH void operator-=(uint4 &a, unsigned int b) { a.x-=b; a.y-=b; a.z-=b; a.w-=b; }
CUDABENCH_BOTH uint4 operator*(uint4 a, uint4 b) { return make_uint4(a.x*b.x, a.y*b.y, a.z*b.z, a.w*b.w); }
CUDABENCH_BOTH uint4 operator*(uint4 a, unsigned int b) { return make_uint4(a.x*b, a.y*b, a.z*b, a.w*b); }
CUDABENCH_BOTH uint4 operator*(unsigned int a, uint4 b) { return make_uint4(a*b.x, a*b.y, a*b.z, a*b.w); }
CUDABENCH_BOTH void operator*=(uint4 &a, uint4 b) { a.x*=b.x; a.y*=b.y; a.z*=b.z; a.w*=b.w; }
CUDABENCH_BOTH void operator*=(uint4 &a, unsigned int b) { a.x*=b; a.y*=b; a.z*=b; a.w*=b; }
CUDABENCH_BOTH uint4 make_uint4(unsigned int s) { return make_uint4(s, s, s, s); }
CUDABENCH_BOTH uint4 min(uint4 a, uint4 b) {
    return make_uint4(min(a.x, b.x), min(a.y, b.y), min(a.z, b.z), min(a.w, b.w));
}
CUDABENCH_BOTH uint4 max(uint4 a, uint4 b) {
    return make_uint4(max(a.x, b.x), max(a.y, b.y), max(a.z, b.z), max(a.w, b.w));
}
CUDABENCH_BOTH uint4 clamp(uint4 v, unsigned int low, unsigned int high) {
    return make_uint4(clamp(v.x, low, high), clamp(v.y, low, high), clamp(v.z, low, high), clamp(v.w, low, high));
}
CUDABENCH_BOTH uint4 clamp(uint4 v, uint4 low, uint4 high) {
    return make_uint4(clamp(v.x, low.x, high.x), clamp(v.y, low.y, high.y), clamp(v.z, low.z, high.z), clamp(v.w, low.w, high.w));
}
CUDABENCH_BOTH unsigned int dot(uint4 a, uint4 b) { return a.x*b.x+a.y*b.y+a.z*b.z+a.w*b.w; }

// constructors of uint vectors from shorter or longer vectors of uint
CUDABENCH_BOTH uint2 make_uint2(uint3 v) { return make_uint2(v.x, v.y); }
CUDABENCH_BOTH uint2 make_uint2(uint4 v) { return make_uint2(v.x, v.y); }
CUDABENCH_BOTH uint3 make_uint3(uint2 v) { return make_uint3(v.x, v.y, 0); }
CUDABENCH_BOTH uint3 make_uint3(uint2 v, unsigned int s) { return make_uint3(v.x, v.y, s); }
CUDABENCH_BOTH uint3 make_uint3(uint4 v) { return make_uint3(v.x, v.y, v.z); }
CUDABENCH_BOTH uint4 make_uint4(uint3 v) { return make_uint4(v.x, v.y, v.z, 0); }
CUDABENCH_BOTH uint4 make_uint4(uint3 v, unsigned int s) { return make_uint4(v.x, v.y, v.z, s); }

// constructors from vectors of other types
CUDABENCH_BOTH float2 make_float2(int2 v) { return make_float2((float)v.x, (float)v.y); }
CUDABENCH_BOTH float3 make_float3(int3 v) { return make_float3((float)v.x, (float)v.y, (float)v.z); }
CUDABENCH_BOTH float4 make_float4(int4 v) { return make_float4((float)v.x, (float)v.y, (float)v.z, (float)v.w); }
CUDABENCH_BOTH float2 make_float2(uint2 v) { return make_float2((float)v.x, (float)v.y); }
CUDABENCH_BOTH float3 make_float3(uint3 v) { return make_float3((float)v.x, (float)v.y, (float)v.z); }
CUDABENCH_BOTH float4 make_float4(uint4 v) { return make_float4((float)v.x, (float)v.y, (float)v.z, (float)v.w); }
CUDABENCH_BOTH int2 make_int2(float2 v) { return make_int2((int)v.x, (int)v.y); }
CUDABENCH_BOTH int3 make_int3(float3 v) { return make_int3((int)v.x, (int)v.y, (int)v.z); }
CUDABENCH_BOTH int4 make_int4(float4 v) { return make_int4((int)v.x, (int)v.y, (int)v.z, (int)v.w); }
CUDABENCH_BOTH int2 make_int2(uint2 v) { return make_int2((int)v.x, (int)v.y); }
CUDABENCH_BOTH int3 make_int3(uint3 v) { return make_int3((int)v.x, (int)v.y, (int)v.z); }
CUDABENCH_BOTH int4 make_int4(uint4 v) { return make_int4((int)v.x, (int)v.y, (int)v.z, (int)v.w); }
CUDABENCH_BOTH uint2 make_uint2(float2 v) { return make_uint2((unsigned int)v.x, (unsigned int)v.y); }
CUDABENCH_BOTH uint3 make_uint3(float3 v) { return make_uint3((unsigned int)v.x, (unsigned int)v.y, (unsigned int)v.z); }
CUDABENCH_BOTH uint4 make_uint4(float4 v) {
    return make_uint4((unsigned int)v.x, (unsigned int)v.y, (unsigned int)v.z, (unsigned int)v.w);
}
CUDABENCH_BOTH uint2 make_uint2(int2 v) { return make_uint2((unsigned int)v.x, (unsigned int)v.y); }
CUDABENCH_BOTH uint3 make_uint3(int3 v) { return make_uint3((unsigned int)v.x, (unsigned int)v.y, (unsigned int)v.z); }
CUDABENCH_BOTH uint4 make_uint4(int4 v) {
    return make_uint4((unsigned int)v.x, (unsigned int)v.y, (unsigned int)v.z, (unsigned int)v.w);
}

// functions of float2
CUDABENCH_BOTH float2 lerp(float2 a, float2 b, float t) { return a + t*(b-a); }
CUDABENCH_BOTH float length(float2 v) { return sqrtf(dot(v, v)); }
CUDABENCH_BOTH float2 normalize(float2 v) { return v * rsqrtf(dot(v, v)); }
CUDABENCH_BOTH float2 reflect(float2 i, float2 n) { return i - 2.0f * n * dot(n, i); }
CUDABENCH_BOTH float2 fmodf(float2 a, float2 b) { return make_float2(fmodf(a.x, b.x), fmodf(a.y, b.y)); }
CUDABENCH_BOTH float2 fracf(float2 v) { return make_float2(v.x - floorf(v.x), v.y - floorf(v.y)); }
CUDABENCH_BOTH float2 fabs(float2 v) { return make_float2(fabsf(v.x), fabsf(v.y)); }
CUDABENCH_BOTH float2 floorf(float2 v) { return make_float2(floorf(v.x), floorf(v.y)); }
CUDABENCH_BOTH float2 smoothstep(float2 a, float2 b, float2 x) {
    float2 y = clamp((x - a) / (b - a), 0.0f, 1.0f);
    return y*y*(make_float2(3.0f) - make_float2(2.0f)*y);
}

// functions of float3
CUDABENCH_BOTH float3 lerp(float3 a, float3 b, float t) { return a + t*(b-a); }
CUDABENCH_BOTH float length(float3 v) { return sqrtf(dot(v, v)); }
CUDABENCH_BOTH float3 normalize(float3 v) { return v * rsqrtf(dot(v, v)); }
CUDABENCH_BOTH float3 reflect(float3 i, float3 n) { return i - 2.0f * n * dot(n, i); }
CUDABENCH_BOTH float3 fmodf(float3 a, float3 b) { return make_float3(fmodf(a.x, b.x), fmodf(a.y, b.y), fmodf(a.z, b.z)); }
CUDABENCH_BOTH float3 fracf(float3 v) { return make_float3(v.x - floorf(v.x), v.y - floorf(v.y), v.z - floorf(v.z)); }
CUDABENCH_BOTH float3 fabs(float3 v) { return make_float3(fabsf(v.x), fabsf(v.y), fabsf(v.z)); }
CUDABENCH_BOTH float3 floorf(float3 v) { return make_float3(floorf(v.x), floorf(v.y), floorf(v.z)); }
CUDABENCH_BOTH float3 smoothstep(float3 a, float3 b, float3 x) {
    float3 y = clamp((x - a) / (b - a), 0.0f, 1.0f);
    return y*y*(make_float3(3.0f) - make_float3(2.0f)*y);
}

// functions of float4
CUDABENCH_BOTH float4 lerp(float4 a, float4 b, float t) { return a + t*(b-a); }
CUDABENCH_BOTH float length(float4 v) { return sqrtf(dot(v, v)); }
CUDABENCH_BOTH float4 normalize(float4 v) { return v * rsqrtf(dot(v, v)); }
CUDABENCH_BOTH float4 reflect(float4 i, float4 n) { return i - 2.0f * n * dot(n, i); }
CUDABENCH_BOTH float4 fmodf(float4 a, float4 b) {
    return make_float4(fmodf(a.x, b.x), fmodf(a.y, b.y), fmodf(a.z, b.z), fmodf(a.w, b.w));
}
CUDABENCH_BOTH float4 fracf(float4 v) {
    return make_float4(v.x - floorf(v.x), v.y - floorf(v.y), v.z - floorf(v.z), v.w - floorf(v.w));
}
CUDABENCH_BOTH float4 fabs(float4 v) { return make_float4(fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w)); }
CUDABENCH_BOTH float4 floorf(float4 v) { return make_float4(floorf(v.x), floorf(v.y), floorf(v.z), floorf(v.w)); }
CUDABENCH_BOTH float4 smoothstep(float4 a, float4 b, float4 x) {
    float4 y = clamp((x - a) / (b - a), 0.0f, 1.0f);
    return y*y*(make_float4(3.0f) - make_float4(2.0f)*y);
}
CUDABENCH_BOTH float3 cross(float3 a, float3 b) {
    return make_float3(a.y*b.z - a.z*b.y, a.z*b.x - a.x*b.z, a.x*b.y - a.y*b.x);
}
#undef CUDABENCH_BOTH
