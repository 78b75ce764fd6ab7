#include "braid/engine/trace/chunk_attention.h"

#include <algorithm>

#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/config.h"
#include "braid/schedule/micro_batch.h"

namespace braid {
namespace {

constexpr int kPage = 64;
constexpr int64_t kFewTokens = 8;  // the decode kernel's

// A call over pages for host code, which reads no data.
struct Call {
  Call(int heads, int kv_heads, int head_dim, int64_t tokens, int64_t cached) {
    desc.num_q_heads = heads;
    desc.num_kv_heads = kv_heads;
    desc.head_dim_qk = desc.head_dim_v = head_dim;
    desc.scale = 1;
    desc.window_right = 0;
    desc.page_size = kPage;
    q.q = q.o = bytes;
    q.rows = tokens;
    q.length = static_cast<int32_t>(tokens);
    q.offset = static_cast<int32_t>(cached);
    q.kv_end = 1;
    kv.k = kv.v = bytes;
    kv.length = static_cast<int32_t>(cached + tokens);
    kv.page_table = numbers;
    kv.page_table_stride = kv.num_pages = ceil_div(kv.length, kPage);
  }
  // As planned: any of the sequences may have all tokens, and lengths come with the step.
  void plan_for(int sequences) {
    desc.batch = sequences;
    q.starts = q.offsets = kv.lengths = numbers;
  }
  cuda::AttentionParams params() const { return {{&q, 1}, {&kv, 1}}; }

  cuda::AttentionDesc desc;
  cuda::QTensor q;
  cuda::KvTensor kv;
  alignas(16) std::byte bytes[16]{};
  int32_t numbers[1]{};
};

bool same_kernel(cuda::AttentionConfig a, cuda::AttentionConfig b) {
  a.cost_us = b.cost_us = 0;
  return a == b;
}

}  // namespace

ChunkAttention::ChunkAttention(const ModelConfig& model, int parts, int64_t sequences, int sms)
    : heads_(static_cast<int>(model.Hq / parts)),
      kv_heads_(static_cast<int>(ceil_div(model.Hkv, int64_t{parts}))),
      head_dim_(static_cast<int>(model.D)),
      sms_(sms),
      sequences_(static_cast<int>(sequences)) {
  const bool has_kernel = head_dim_ == 64 || head_dim_ == 96 || head_dim_ == 128;
  const bool even = model.Hq % parts == 0 && heads_ % kv_heads_ == 0;
  if (!has_kernel || !even || model.latent || model.dual) return;
  layers_ = model.windows.empty() ? model.layers : std::ranges::count(model.windows, 0);
}

double ChunkAttention::beyond(const Profile& profile, int64_t tokens, int64_t cached) const {
  const Rate* const rate = profile.find("attention", "", 1, head_dim_);
  if (layers_ == 0 || tokens <= kFewTokens || rate == nullptr) return 0;
  const cuda::AttentionDevice device{.num_sms = sms_};
  const Call real(heads_, kv_heads_, head_dim_, tokens, cached);
  Call planned = real;
  planned.plan_for(sequences_);
  const cuda::AttentionConfig chosen = choose(planned.desc, planned.params(), device);
  for (const cuda::AttentionConfig& c : candidates(real.desc, real.params(), device)) {
    if (!same_kernel(c, chosen)) continue;
    const double flops =
        4.0 * heads_ * head_dim_ * static_cast<double>(attended_keys(cached, tokens));
    return static_cast<double>(layers_) *
           (1e-6 * c.cost_us - flops / rate->at(static_cast<double>(tokens)));
  }
  return 0;
}

}  // namespace braid
