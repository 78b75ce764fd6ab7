#pragma once

#include <cmath>
#include <vector>

#include "braid/kernels/cuda/attention/desc.h"

// Calls for tests of what is decided before a launch: nothing reads their data.
namespace braid::cuda {

inline AttentionDesc make_desc(int d, int hq, int hkv) {
  AttentionDesc desc;
  desc.num_q_heads = hq;
  desc.num_kv_heads = hkv;
  desc.head_dim_qk = desc.head_dim_v = d;
  desc.scale = 1.f / std::sqrt(static_cast<float>(d));
  return desc;
}

struct Call {
  alignas(16) char data[16];
  std::vector<QTensor> q;
  std::vector<KvTensor> kv;

  Call(std::vector<int> q_lengths, std::vector<int> kv_lengths) {
    for (int n : q_lengths) {
      QTensor s;
      s.q = s.o = s.state_o = data;
      s.state_l = s.state_m = reinterpret_cast<float*>(data);
      s.length = n;
      s.kv_end = static_cast<int>(kv_lengths.size());
      q.push_back(s);
    }
    int offset = 0;
    for (int n : kv_lengths) {
      KvTensor s;
      s.k = s.v = data;
      s.length = n;
      s.offset = offset;
      offset += n;
      kv.push_back(s);
    }
  }
  AttentionParams params() const { return {q, kv}; }
};

}  // namespace braid::cuda
