#pragma once

#include <cstdint>

// Memory that other CTAs, GPUs and the host read and write meanwhile; and the clock.
namespace braid::cuda::ptx {

// 16 bytes seen as a whole or not at all (a 128-bit scalar of the PTX memory model; a vector of
// four words is no such scalar).
__device__ inline void store_relaxed_system(uint4* p, uint4 v) {
  asm volatile(
      "{\n"
      ".reg .b128 line;\n"
      ".reg .b64 low, high;\n"
      "mov.b64 low, {%1, %2};\n"
      "mov.b64 high, {%3, %4};\n"
      "mov.b128 line, {low, high};\n"
      "st.relaxed.sys.global.b128 [%0], line;\n"
      "}\n" ::"l"(p),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}

__device__ inline uint4 load_relaxed_system(const uint4* p) {
  uint4 v;
  asm volatile(
      "{\n"
      ".reg .b128 line;\n"
      ".reg .b64 low, high;\n"
      "ld.relaxed.sys.global.b128 line, [%4];\n"
      "mov.b128 {low, high}, line;\n"
      "mov.b64 {%0, %1}, low;\n"
      "mov.b64 {%2, %3}, high;\n"
      "}\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p)
      : "memory");
  return v;
}

// Likewise eight bytes.
__device__ inline void store_relaxed_system(uint2* p, uint2 v) {
  const uint64_t x = uint64_t{v.y} << 32 | v.x;
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

__device__ inline uint32_t load_relaxed_system(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ inline void store_relaxed_system(uint32_t* p, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

__device__ inline uint32_t load_acquire_system(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ inline void store_release_system(uint32_t* p, uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

__device__ inline uint64_t load_acquire_system(const uint64_t* p) {
  uint64_t x;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

// This thread's earlier writes, and writes it has seen, are visible to readers of `x`.
__device__ inline void store_release_system(uint64_t* p, uint64_t x) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

// The same among the threads of this GPU.
__device__ inline uint32_t load_acquire(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

__device__ inline void store_release(uint32_t* p, uint32_t x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// 16 bytes that this SM will not read again.
__device__ inline uint4 load_streaming(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// Nanoseconds on a clock shared by all GPUs in a machine, up to its resolution (about 1 us).
__device__ inline uint64_t global_nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

}  // namespace braid::cuda::ptx
