#pragma once

#include <cstdint>

// Memory that other CTAs on this GPU read and write.
namespace braid::cuda::ptx {

// Eight bytes are seen as a whole or not at all; of sixteen, each half.
__device__ inline uint2 load_relaxed_gpu(const uint2* p) {
  uint64_t x;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return make_uint2(static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32));
}
__device__ inline uint4 load_relaxed_gpu(const uint4* p) {
  uint64_t a, b;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b)
               : "l"(p)
               : "memory");
  return make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32),
                    static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32));
}
__device__ inline void store_relaxed_gpu(uint2* p, uint2 v) {
  const uint64_t x = uint64_t{v.y} << 32 | v.x;
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
__device__ inline void store_relaxed_gpu(uint4* p, uint4 v) {
  const uint64_t a = uint64_t{v.y} << 32 | v.x, b = uint64_t{v.w} << 32 | v.z;
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
}

}  // namespace braid::cuda::ptx
