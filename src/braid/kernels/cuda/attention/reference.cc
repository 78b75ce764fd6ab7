#include "braid/kernels/cuda/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/tensor/half.h"

namespace braid::cuda {
namespace {

double load(DType dtype, const void* base, int64_t i) {
  switch (dtype) {
    case DType::bf16:
      return to_float(static_cast<const bf16*>(base)[i]);
    case DType::f16:
      return to_float(static_cast<const f16*>(base)[i]);
    default:
      return static_cast<const float*>(base)[i];
  }
}

// Element index of key t's row.
int64_t kv_row(const AttentionDesc& d, const KvTensor& s, const Strides& stride, int b, int t,
               int h) {
  if (d.page_size == 0) return b * stride.batch + t * stride.token + h * stride.head;
  const int32_t page = s.page_table[int64_t{b} * s.page_table_stride + t / d.page_size];
  return page * stride.batch + t % d.page_size * stride.token + h * stride.head;
}

}  // namespace

ReferenceRow attention_reference(const AttentionDesc& d, const AttentionParams& params, int segment,
                                 int b, int t, int h) {
  const QTensor& qs = params.q[segment];
  const int64_t row = qs.starts ? qs.starts[b] + t : t;
  const int64_t outer = qs.starts ? 0 : b;
  const int64_t q_row = outer * qs.q_stride.batch + row * qs.q_stride.token + h * qs.q_stride.head;
  const int64_t position = int64_t{qs.offset} + (qs.offsets ? qs.offsets[b] : 0) + t;
  const int kv_head = h / (d.num_q_heads / d.num_kv_heads);

  struct Key {
    double s;
    const KvTensor* segment;
    int t;
  };
  std::vector<Key> keys;
  ReferenceRow out;
  out.m = -std::numeric_limits<double>::infinity();
  for (int j = qs.kv_begin; j < qs.kv_end; ++j) {
    const KvTensor& ks = params.kv[j];
    const int length = ks.lengths ? ks.lengths[b] : ks.length;
    for (int k = 0; k < length; ++k) {
      const int64_t distance = int64_t{ks.offset} + k - position;
      if (d.window_right != kUnlimited && distance > d.window_right) continue;
      if (d.window_left != kUnlimited && -distance > d.window_left) continue;
      const int64_t k_row = kv_row(d, ks, ks.k_stride, b, k, kv_head);
      double s = 0;
      double s_abs = 0;
      for (int i = 0; i < d.head_dim_qk; ++i) {
        const double product = load(d.dtype, qs.q, q_row + i) * load(d.dtype, ks.k, k_row + i);
        s += product;
        s_abs += std::abs(product);
      }
      out.s_abs = std::max(out.s_abs, s_abs * d.scale);
      keys.push_back({s * d.scale, &ks, k});
      out.m = std::max(out.m, s * d.scale);
    }
  }
  out.o.assign(d.head_dim_v, 0);
  out.o_abs.assign(d.head_dim_v, 0);
  const int64_t stat =
      outer * qs.row_stride.batch + row * qs.row_stride.token + h * qs.row_stride.head;
  double carried = 0;
  if (d.load_state && qs.state_l[stat] > 0) {
    const double carried_m = qs.state_m[stat];
    out.m = std::max(out.m, carried_m);
    carried = std::exp(carried_m - out.m);
    out.l = carried * qs.state_l[stat];
    const int64_t o_row =
        outer * qs.state_stride.batch + row * qs.state_stride.token + h * qs.state_stride.head;
    for (int i = 0; i < d.head_dim_v; ++i) {
      out.o[i] = carried * load(d.state_dtype, qs.state_o, o_row + i);
      out.o_abs[i] = std::abs(out.o[i]);
    }
  }
  for (const Key& key : keys) {
    const double p = std::exp(key.s - out.m);
    out.l += p;
    const int64_t v_row = kv_row(d, *key.segment, key.segment->v_stride, b, key.t, kv_head);
    for (int i = 0; i < d.head_dim_v; ++i) {
      const double v = load(d.dtype, key.segment->v, v_row + i);
      out.o[i] += p * v;
      out.o_abs[i] += p * std::abs(v);
    }
  }
  if (out.l > 0) {
    for (double& x : out.o) x /= out.l;
    for (double& x : out.o_abs) x /= out.l;
  }
  return out;
}

}  // namespace braid::cuda
