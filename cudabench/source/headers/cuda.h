#pragma once
struct __attribute__((aligned(64))) CUtensorMap { unsigned long long opaque[16]; };
