#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"

// Warpgroup matrix products (sm_90a): d[64, N] (+)= a[64, 16] b[16, N] with f32 accumulators.
// A thread's part of d: element 4 j + 2 r + c is row 16 warp + lane / 4 + 8 r, column
// 8 j + 2 (lane % 4) + c.
namespace braid::cuda::ptx {

// A shared-memory operand in 128-byte swizzle, groups of 8 rows 1024 bytes apart: the lower half of
// the descriptor (the upper half is a constant). Adding bytes / 16 moves the start. K-major rows
// hold 64 elements of K; MN-major rows hold 64 columns of a k, with chunks of 64 columns
// `chunk_bytes` apart.
__device__ inline uint32_t wgmma_descriptor(const void* smem, uint32_t chunk_bytes) {
  return (smem_address(smem) & 0x3ffff) >> 4 | (chunk_bytes >> 4) << 16;
}

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Pins accumulators here: no use of accumulators moves across.
template <int kCount>
__device__ inline void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <class T, int N>
struct Wgmma;  // ss: a and b K-major in shared memory; rk, rs: a in registers, b K- or MN-major

#define BRAID_N10(t) \
  "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define BRAID_N8(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7"
#define BRAID_N6(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5"
#define BRAID_N4(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3"
#define BRAID_N2(t) "%" #t "0,%" #t "1"
#define BRAID_R2(t) "+f"(d[t##0]), "+f"(d[t##1])
#define BRAID_R4(t) BRAID_R2(t), "+f"(d[t##2]), "+f"(d[t##3])
#define BRAID_R6(t) BRAID_R4(t), "+f"(d[t##4]), "+f"(d[t##5])
#define BRAID_R8(t) BRAID_R6(t), "+f"(d[t##6]), "+f"(d[t##7])
#define BRAID_R10(t) BRAID_R8(t), "+f"(d[t##8]), "+f"(d[t##9])

#define BRAID_N30 BRAID_N10() "," BRAID_N10(1) "," BRAID_N10(2)
#define BRAID_N60 BRAID_N30 "," BRAID_N10(3) "," BRAID_N10(4) "," BRAID_N10(5)
#define BRAID_N80 BRAID_N60 "," BRAID_N10(6) "," BRAID_N10(7)
#define BRAID_R30 BRAID_R10(), BRAID_R10(1), BRAID_R10(2)
#define BRAID_R60 BRAID_R30, BRAID_R10(3), BRAID_R10(4), BRAID_R10(5)
#define BRAID_R80 BRAID_R60, BRAID_R10(6), BRAID_R10(7)

#define BRAID_NAMES_64 BRAID_N30 "," BRAID_N2(3)
#define BRAID_REGS_64 BRAID_R30, BRAID_R2(3)
#define BRAID_NAMES_72 BRAID_N30 "," BRAID_N6(3)
#define BRAID_REGS_72 BRAID_R30, BRAID_R6(3)
#define BRAID_NAMES_80 BRAID_N30 "," BRAID_N10(3)
#define BRAID_REGS_80 BRAID_R30, BRAID_R10(3)
#define BRAID_NAMES_96 BRAID_N30 "," BRAID_N10(3) "," BRAID_N8(4)
#define BRAID_REGS_96 BRAID_R30, BRAID_R10(3), BRAID_R8(4)
#define BRAID_NAMES_112 BRAID_N30 "," BRAID_N10(3) "," BRAID_N10(4) "," BRAID_N6(5)
#define BRAID_REGS_112 BRAID_R30, BRAID_R10(3), BRAID_R10(4), BRAID_R6(5)
#define BRAID_NAMES_128 BRAID_N60 "," BRAID_N4(6)
#define BRAID_REGS_128 BRAID_R60, BRAID_R4(6)
#define BRAID_NAMES_144 BRAID_N60 "," BRAID_N10(6) "," BRAID_N2(7)
#define BRAID_REGS_144 BRAID_R60, BRAID_R10(6), BRAID_R2(7)
#define BRAID_NAMES_160 BRAID_N80
#define BRAID_REGS_160 BRAID_R80
#define BRAID_NAMES_176 BRAID_N80 "," BRAID_N8(8)
#define BRAID_REGS_176 BRAID_R80, BRAID_R8(8)
#define BRAID_NAMES_192 BRAID_N80 "," BRAID_N10(8) "," BRAID_N6(9)
#define BRAID_REGS_192 BRAID_R80, BRAID_R10(8), BRAID_R6(9)
#define BRAID_NAMES_256 \
  BRAID_N80 "," BRAID_N10(8) "," BRAID_N10(9) "," BRAID_N10(10) "," BRAID_N10(11) "," BRAID_N8(12)
#define BRAID_REGS_256 \
  BRAID_R80, BRAID_R10(8), BRAID_R10(9), BRAID_R10(10), BRAID_R10(11), BRAID_R8(12)

// i0.. are the numbers of the operands behind the N / 2 accumulators.
#define BRAID_WGMMA_TYPE(N, T, type, i0, i1, i2, i3, i4, i5)                                      \
  template <>                                                                                     \
  struct Wgmma<T, N> {                                                                            \
    __device__ static void ss(float (&d)[N / 2], uint32_t a, uint32_t b, int accumulate) {        \
      asm volatile("{\n.reg .pred p;\n.reg .b64 da, db;\nmov.b64 da, {%" #i0                      \
                   ", 0x40000040};\n"                                                             \
                   "mov.b64 db, {%" #i1 ", 0x40000040};\nsetp.ne.b32 p, %" #i2                    \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type          \
                   " {" BRAID_NAMES_##N "}, da, db, p, 1, 1, 0, 0;\n}\n"                          \
                   : BRAID_REGS_##N                                                               \
                   : "r"(a), "r"(b), "r"(accumulate));                                            \
    }                                                                                             \
    __device__ static void rs(float (&d)[N / 2], const uint32_t* a, uint32_t b, int accumulate) { \
      asm volatile("{\n.reg .pred p;\n.reg .b64 db;\nmov.b64 db, {%" #i4                          \
                   ", 0x40000040};\n"                                                             \
                   "setp.ne.b32 p, %" #i5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N            \
                   "k16.f32." type "." type " {" BRAID_NAMES_##N "}, {%" #i0 ",%" #i1 ",%" #i2    \
                                                                 ",%" #i3                         \
                                                                 "}, db"                          \
                                                                 ", p, 1, 1, 1;\n}\n"             \
                   : BRAID_REGS_##N                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));        \
    }                                                                                             \
    __device__ static void rk(float (&d)[N / 2], const uint32_t* a, uint32_t b, int accumulate) { \
      asm volatile("{\n.reg .pred p;\n.reg .b64 db;\nmov.b64 db, {%" #i4                          \
                   ", 0x40000040};\n"                                                             \
                   "setp.ne.b32 p, %" #i5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N            \
                   "k16.f32." type "." type " {" BRAID_NAMES_##N "}, {%" #i0 ",%" #i1 ",%" #i2    \
                                                                 ",%" #i3                         \
                                                                 "}, db"                          \
                                                                 ", p, 1, 1, 0;\n}\n"             \
                   : BRAID_REGS_##N                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));        \
    }                                                                                             \
  };
#define BRAID_WGMMA(N, ...)                               \
  BRAID_WGMMA_TYPE(N, __nv_bfloat16, "bf16", __VA_ARGS__) \
  BRAID_WGMMA_TYPE(N, __half, "f16", __VA_ARGS__)

BRAID_WGMMA(64, 32, 33, 34, 35, 36, 37)
BRAID_WGMMA(72, 36, 37, 38, 39, 40, 41)
BRAID_WGMMA(80, 40, 41, 42, 43, 44, 45)
BRAID_WGMMA(96, 48, 49, 50, 51, 52, 53)
BRAID_WGMMA(112, 56, 57, 58, 59, 60, 61)
BRAID_WGMMA(128, 64, 65, 66, 67, 68, 69)
BRAID_WGMMA(144, 72, 73, 74, 75, 76, 77)
BRAID_WGMMA(160, 80, 81, 82, 83, 84, 85)
BRAID_WGMMA(176, 88, 89, 90, 91, 92, 93)
BRAID_WGMMA(192, 96, 97, 98, 99, 100, 101)
BRAID_WGMMA(256, 128, 129, 130, 131, 132, 133)

}  // namespace braid::cuda::ptx
