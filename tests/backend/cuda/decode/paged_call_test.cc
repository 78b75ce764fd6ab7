#include "braid/kernels/cuda/attention/paged_call.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/decode/decode_case.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/kernels/cuda/decode/device/query_spans.h"

namespace braid::cuda::test {
namespace {

PagedOperands operands(DecodeCase& c, const int32_t* spans) {
  const DecodeDesc& d = c.desc();
  const int64_t columns = d.num_q_heads * d.attrs.head_dim;
  const Shape cache{c.pages(), d.page_size, d.num_kv_heads, d.attrs.head_dim};
  PagedOperands x;
  x.q = make_view(c.q().data(), d.q_dtype, {d.max_tokens, columns});
  x.k_cache = make_view(c.k().data(), d.cache_dtype, cache);
  x.v_cache = make_view(c.v().data(), d.cache_dtype, cache);
  x.page_table = make_view(reinterpret_cast<std::byte*>(c.page_table().data()), DType::i32,
                           {d.max_sequences, d.table_stride});
  x.out = make_view(c.out().data(), d.out_dtype, {d.max_tokens, columns});
  x.spans = spans;
  return x;
}

DecodeSpec make_spec(int q_heads, int kv_heads, int head_dim, int page, std::vector<Lengths> live) {
  DecodeSpec s;
  s.q_heads = q_heads;
  s.kv_heads = kv_heads;
  s.attrs.head_dim = head_dim;
  s.attrs.group = q_heads / kv_heads;
  s.attrs.scale = 1.f / std::sqrt(static_cast<float>(head_dim));
  s.page_size = page;
  s.live = std::move(live);
  s.spare_sequences = 3;
  s.spare_tokens = 70;
  return s;
}

void check_segment_attention(const DecodeSpec& spec) {
  DecodeCase c(spec);
  const auto S = static_cast<size_t>(c.desc().max_sequences);
  DeviceBuffer<int32_t> spans(3 * S + 1);
  spans.fill(0x7f);
  query_spans(c.q_start().data(), c.kv_len().data(), c.live_sequences().data(),
              c.desc().max_sequences, spans.data(), nullptr, {});
  const PagedCall call = make_paged_call(spec.attrs, operands(c, spans.data()));
  DeviceBuffer<std::byte> workspace(kAttentionWorkspaceBytes);
  workspace.fill(0);
  const AttentionDevice device = attention_device();
  const AttentionConfig config = choose(call.desc, call.params(), device);
  SCOPED_TRACE(fmt::format("{} as {}", to_string(call.desc), to_string(config)));
  // The decode kernel's bookkeeping is checked along: give it its workspace.
  c.run(choose(c.desc(), decode_device()));
  ASSERT_EQ(c.check(), "") << "decode attention";
  c.poison_output();
  attention(call.desc, call.params(), config, workspace.data(), nullptr);
  check_cuda(cudaDeviceSynchronize(), "segment attention");
  ASSERT_EQ(c.check(), "");
  // Both together: the first sequences, as far as they have one token, are the decode kernel's.
  int64_t decodes = 0;
  while (decodes < std::ssize(spec.live) && spec.live[static_cast<size_t>(decodes)].q_len == 1) {
    ++decodes;
  }
  DeviceBuffer<int64_t> count(1);
  count.fill(0x7f);
  query_spans(c.q_start().data(), c.kv_len().data(), c.live_sequences().data(),
              c.desc().max_sequences, spans.data(), count.data(), {});
  EXPECT_EQ(count.download()[0], decodes);
  c.poison_output();
  attention(call.desc, call.params(), config, workspace.data(), nullptr);
  check_cuda(cudaDeviceSynchronize(), "segment attention");
  EXPECT_EQ(c.check() == "", decodes == 0) << "segment attention left no row to the decode kernel";
  const DecodeConfig decode = choose(c.desc(), decode_device());
  DecodeParams params = c.params(decode);
  params.sequences = count.data();
  decode_attention(c.desc(), params, decode, {});
  check_cuda(cudaDeviceSynchronize(), "decode attention");
  ASSERT_EQ(c.check(), "") << "both kernels";
}

TEST(PagedCall, ChunkedPrefill) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
  for (auto [hq, hkv, head_dim] : {std::tuple{4, 4, 64}, {6, 2, 128}, {9, 3, 64}}) {
    for (int page : {16, 64}) {
      check_segment_attention(make_spec(hq, hkv, head_dim, page, {{33, 33}}));
      check_segment_attention(make_spec(hq, hkv, head_dim, page, {{60, 200}, {40, 40}}));
      check_segment_attention(
          make_spec(hq, hkv, head_dim, page, {{1, 77}, {1, 700}, {1, 1}, {1, 64}, {90, 300}}));
      check_segment_attention(make_spec(hq, hkv, head_dim, page, {{1, 77}, {1, 129}}));
      check_segment_attention(
          make_spec(hq, hkv, head_dim, page, {{1, 500}, {100, 111}, {150, 150}, {5, 77}, {1, 1}}));
    }
    check_segment_attention(make_spec(hq, hkv, head_dim, 64, {{300, 800}, {600, 600}, {100, 101}}));
  }
}

TEST(PagedCall, WindowsAndHeadParts) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
  DecodeSpec spec = make_spec(6, 2, 64, 64, {{100, 400}, {30, 30}});
  spec.attrs.window = 50;
  check_segment_attention(spec);
  // Two whole groups from the second KV head of three on.
  spec = make_spec(4, 2, 64, 64, {{100, 400}, {30, 30}});
  spec.kv_heads = 3;
  spec.attrs.head_offset = 2;
  check_segment_attention(spec);
}

TEST(PagedCall, Refusals) {
  ops::AttentionAttrs attrs;
  attrs.head_dim = 64;
  attrs.group = 3;
  alignas(16) static std::byte memory[16];
  static int32_t spans[10];
  PagedOperands x;
  x.q = x.out = make_view(memory, DType::bf16, {8, 6 * 64});
  x.k_cache = x.v_cache = make_view(memory, DType::bf16, {4, 64, 3, 64});
  x.page_table = make_view(memory, DType::i32, {2, 4});
  x.spans = spans;
  EXPECT_EQ(make_paged_call(attrs, x).desc.num_kv_heads, 2);
  attrs.head_offset = 1;
  EXPECT_THROW(make_paged_call(attrs, x), Error);
  attrs.head_offset = 0;
  attrs.softcap = 3;
  EXPECT_THROW(make_paged_call(attrs, x), Error);
  attrs.softcap = 0;
  x.q = make_view(memory, DType::f32, {8, 6 * 64});
  EXPECT_THROW(make_paged_call(attrs, x), Error);
}

}  // namespace
}  // namespace braid::cuda::test
