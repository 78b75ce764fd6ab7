#include "braid/kernels/cpu/pointwise/norm_simd.h"
#include "braid/kernels/cpu/pointwise/norm.h"

namespace braid::cpu::BRAID_ISA {

void rms_norm_rows(const RmsNormParams& p, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const float* x = p.x + t * p.x_stride;
    float* y = p.y + t * p.y_stride;
    for (int64_t c = 0; c < p.cols; c += p.group) {
      rms_norm_group(x + c, p.w, y + c, p.group, p.eps);
    }
  }
}

void add_rms_norm_rows(const AddRmsNormParams& p, Range rows) {
  const int64_t whole = p.cols / kLanes * kLanes;
  const int tail = static_cast<int>(p.cols - whole);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const float* x = p.x + t * p.x_stride;
    const float* r = p.r + t * p.r_stride;
    float* s = p.s + t * p.s_stride;
    for (int64_t c = 0; c < whole; c += kLanes) store(s + c, load(x + c) + load(r + c));
    if (tail) store_n(s + whole, load_n(x + whole, tail) + load_n(r + whole, tail), tail);
    rms_norm_group(s, p.w, p.y + t * p.y_stride, p.cols, p.eps);
  }
}

}  // namespace braid::cpu::BRAID_ISA
