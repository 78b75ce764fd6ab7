#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "braid/backend/cuda/stream_words.h"
#include "braid/kernels/cuda/attention/device/launch.h"

// C entries to segment attention for tools/bench_attention_peer.py: one [B, L, H, D] problem, cut
// into segments or into several calls on request.
using namespace braid;
using namespace braid::cuda;

extern "C" {

struct BraidAttentionProblem {
  const void* q;  // [B, Lq, Hq, Dqk], contiguous
  const void* k;  // [B, Lk, Hkv, Dqk]
  const void* v;  // [B, Lk, Hkv, Dv]
  void* o;        // [B, Lq, Hq, Dv]
  float* lse;     // [B, Hq, Lq] or null
  void* state_o;  // f32 or bf16 [B, Lq, Hq, Dv] if calls > 1
  float* state_l;
  float* state_m;
  void* workspace;
  int32_t batch, lq, lk, hq, hkv, dqk, dv;
  int32_t bf16, causal, state_bf16;
  int32_t q_segments, kv_segments, calls;
  int32_t gap;        // tokens of memory between segments, in every tensor
  int32_t candidate;  // -1: choose; -2: the best generic one
  float scale;
  uint32_t* arrived;  // [3], zeros, or null: KV segments are stages that arrive during one call
  void* sums;
  int64_t sums_bytes;
};

// 0, or -1 with the reason in `message`; `name` is the kernel that ran.
int braid_attention(const BraidAttentionProblem* p, cudaStream_t stream, char* name, int name_size,
                    char* message, int message_size) {
  try {
    AttentionDesc d;
    d.dtype = p->bf16 ? DType::bf16 : DType::f16;
    d.batch = p->batch;
    d.num_q_heads = p->hq;
    d.num_kv_heads = p->hkv;
    d.head_dim_qk = p->dqk;
    d.head_dim_v = p->dv;
    d.scale = p->scale;
    if (p->causal) d.window_right = 0;
    if (p->state_bf16) d.state_dtype = DType::bf16;
    const auto at = [](const void* base, int64_t elements, int bytes) {
      return static_cast<char*>(const_cast<void*>(base)) + elements * bytes;
    };
    std::vector<KvTensor> kv(p->kv_segments);
    for (int j = 0; j < p->kv_segments; ++j) {
      const int begin = static_cast<int>(int64_t{p->lk} * j / p->kv_segments);
      const int end = static_cast<int>(int64_t{p->lk} * (j + 1) / p->kv_segments);
      const int64_t rows = p->lk + int64_t{p->gap} * (p->kv_segments - 1);
      const int64_t first = begin + int64_t{p->gap} * j;
      kv[j].k_stride = {rows * p->hkv * p->dqk, int64_t{p->hkv} * p->dqk, p->dqk};
      kv[j].v_stride = {rows * p->hkv * p->dv, int64_t{p->hkv} * p->dv, p->dv};
      kv[j].k = at(p->k, first * kv[j].k_stride.token, 2);
      kv[j].v = at(p->v, first * kv[j].v_stride.token, 2);
      kv[j].length = end - begin;
      kv[j].offset = begin;
      if (p->arrived) kv[j].stage = j;
    }
    std::vector<QTensor> q(p->q_segments);
    for (int i = 0; i < p->q_segments; ++i) {
      const int begin = static_cast<int>(int64_t{p->lq} * i / p->q_segments);
      const int end = static_cast<int>(int64_t{p->lq} * (i + 1) / p->q_segments);
      QTensor& s = q[i];
      const int64_t rows = p->lq + int64_t{p->gap} * (p->q_segments - 1);
      const int64_t first = begin + int64_t{p->gap} * i;
      s.q_stride = {rows * p->hq * p->dqk, int64_t{p->hq} * p->dqk, p->dqk};
      s.o_stride = {rows * p->hq * p->dv, int64_t{p->hq} * p->dv, p->dv};
      s.state_stride = s.o_stride;
      s.row_stride = {p->hq * rows, 1, rows};
      s.q = at(p->q, first * s.q_stride.token, 2);
      s.o = at(p->o, first * s.o_stride.token, 2);
      if (p->lse) s.lse = p->lse + first;
      if (p->state_o) {
        s.state_o = at(p->state_o, first * s.o_stride.token, p->state_bf16 ? 2 : 4);
        s.state_l = p->state_l + first;
        s.state_m = p->state_m + first;
      }
      s.length = end - begin;
      s.offset = begin + p->lk - p->lq;
    }
    AttentionArrivals arrivals{p->arrived, p->sums, static_cast<size_t>(p->sums_bytes)};
    for (int c = 0; c < p->calls; ++c) {
      AttentionDesc desc = d;
      desc.load_state = c > 0;
      desc.finalize = c == p->calls - 1;
      for (QTensor& s : q) {
        s.kv_begin = p->kv_segments * c / p->calls;
        s.kv_end = p->kv_segments * (c + 1) / p->calls;
      }
      static const AttentionDevice device = attention_device();
      AttentionConfig config = choose(desc, {q, kv}, device);
      if (p->candidate != -1) {
        const std::vector<AttentionConfig> all = candidates(desc, {q, kv}, device);
        if (p->candidate >= 0) config = all.at(p->candidate);
        const AttentionConfig* best = nullptr;
        for (const AttentionConfig& c : all) {
          if (c.kernel == AttentionKernel::kGeneric && (!best || c.cost_us < best->cost_us))
            best = &c;
        }
        if (p->candidate == -2) config = *best;
      }
      attention(desc, {q, kv}, config, p->workspace, stream, 0, &arrivals);
      if (name) std::snprintf(name, name_size, "%s", to_string(config).c_str());
    }
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(message, message_size, "%s", e.what());
    return -1;
  }
}

// Tells a call with `arrived` that the keys of `stage` are there.
int braid_attention_continue(uint32_t* arrived, int32_t stage, cudaStream_t stream, char* message,
                             int message_size) {
  try {
    const StreamWord word{StreamWord::Does::write, arrived, static_cast<uint32_t>(stage)};
    put_words(stream, {&word, 1});
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(message, message_size, "%s", e.what());
    return -1;
  }
}

}  // extern "C"
