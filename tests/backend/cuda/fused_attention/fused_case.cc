#include "backend/cuda/fused_attention/fused_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "braid/kernels/cuda/pointwise/rope_table.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {
namespace {

using ops::BlockInput;

constexpr size_t at(BlockInput input) {
  return static_cast<size_t>(input);
}

std::vector<float> as_floats(DType dtype, const std::vector<std::byte>& bytes) {
  const auto elems = static_cast<int64_t>(bytes.size()) / bytes_of(dtype, 1);
  std::vector<float> values(static_cast<size_t>(elems));
  dequantize_row(dtype, bytes.data(), values.data(), elems);
  return values;
}

// |got - want| / |want|; what is no number counts as far away.
double distance(DType dtype, const std::vector<std::byte>& got,
                const std::vector<std::byte>& want) {
  const std::vector<float> a = as_floats(dtype, got), b = as_floats(dtype, want);
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(b[i]) && !std::isfinite(a[i])) continue;
    const double d = static_cast<double>(a[i]) - b[i];
    difference += std::isfinite(d) ? d * d : 1e30;
    size += static_cast<double>(b[i]) * b[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

}  // namespace

std::string to_string(const FusedSpec& s) {
  return fmt::format(
      "{} tokens, C {}, {} x {} heads of {}, {} outputs, pages of {}, {} keys, window "
      "{}{}{}{}{}, seed {}",
      s.shape.tokens, s.shape.width, s.shape.kv_heads, s.shape.group, s.shape.head_dim,
      s.shape.outputs, s.shape.page_size,
      s.contexts.empty() ? fmt::format("{}", s.context)
                         : fmt::format("{}", fmt::join(s.contexts, " ")),
      s.window, s.adds ? ", add" : "", s.biases ? ", biases" : "",
      s.normed_heads ? ", normed heads" : "", s.interleaved ? ", interleaved" : "", s.seed);
}

TensorView FusedCase::Tensor::view() {
  return host.empty() ? TensorView{} : make_view(host.data(), dtype, shape);
}

void FusedCase::fill(Tensor& t, DType dtype, const Shape& shape, float stddev, float mean) {
  std::mt19937_64 rng(spec_.seed * 64 + static_cast<uint64_t>(&t - inputs_.data()));
  std::normal_distribution<float> normal(mean, stddev);
  std::vector<float> values(static_cast<size_t>(shape.elems()));
  for (float& x : values) x = normal(rng);
  t.dtype = dtype;
  t.shape = shape;
  t.host.resize(static_cast<size_t>(bytes_of(dtype, shape.elems())));
  quantize_row(dtype, values.data(), t.host.data(), shape.elems());
}

void FusedCase::ints(Tensor& t, const Shape& shape, const std::vector<int32_t>& values) {
  t.dtype = DType::i32;
  t.shape = shape;
  t.host.resize(values.size() * 4);
  std::memcpy(t.host.data(), values.data(), t.host.size());
}

FusedCase::FusedCase(const FusedSpec& spec) : spec_(spec), inputs_(ops::kProjectedBlockInputs) {
  if (spec_.contexts.empty()) spec_.contexts = {spec.context};
  if (spec_.fresh.empty()) spec_.fresh.assign(spec_.contexts.size(), 1);
  const FusedShape& s = spec.shape;
  const int64_t T = s.tokens, C = s.width, D = s.head_dim, heads = s.kv_heads * s.group;
  if (spec_.live == 0) spec_.live = static_cast<int>(T);
  const auto in = [&](BlockInput i) -> Tensor& { return inputs_[at(i)]; };
  fill(in(BlockInput::a), s.normed ? DType::f32 : DType::bf16, {T, C}, 1);
  if (s.normed && spec.adds) fill(in(BlockInput::b), DType::bf16, {T, C}, 1);
  if (s.normed) fill(in(BlockInput::norm), DType::f32, {C}, 1);
  const float stddev = 1 / std::sqrt(static_cast<float>(C));
  fill(in(BlockInput::wq), s.weights[0], {heads * D, C}, stddev);
  fill(in(BlockInput::wk), s.weights[1], {s.kv_heads * D, C}, stddev);
  fill(in(BlockInput::wv), s.weights[2], {s.kv_heads * D, C}, stddev);
  fill(in(BlockInput::wo), s.weights[3], {s.outputs, heads * D},
       1 / std::sqrt(static_cast<float>(heads * D)));
  if (spec.biases) {
    fill(in(BlockInput::bq), DType::f32, {heads * D}, 1, spec.aligned ? 10 : 0);
    fill(in(BlockInput::bk), DType::f32, {s.kv_heads * D}, 1, spec.aligned ? 1 : 0);
    fill(in(BlockInput::bv), DType::f32, {s.kv_heads * D}, 1);
    fill(in(BlockInput::bo), DType::f32, {s.outputs}, 1);
  }
  if (spec.normed_heads) {
    fill(in(BlockInput::q_norm), DType::f32, {D}, 1);
    fill(in(BlockInput::k_norm), DType::f32, {D}, 1);
  }
  make_sequences();
  attrs_.normed = s.normed;
  attrs_.qkv.norm = {.eps = 1e-5f, .group = C, .dtype = DType::bf16};
  attrs_.qkv.linear = {.n = 3, .dtype = DType::bf16};
  attrs_.rope.rope = {
      .head_dim = D,
      .rotary_dim = spec.rotary_dim == 0 ? D : spec.rotary_dim,
      .pairing = spec.interleaved ? ops::RopePairing::interleaved : ops::RopePairing::half};
  attrs_.rope.eps = spec.normed_heads ? 1e-6f : 0;
  attrs_.attention = {
      .head_dim = D,
      .group = s.group,
      .scale = spec.score_scale != 0 ? spec.score_scale : 1 / std::sqrt(static_cast<float>(D)),
      .window = spec.window};
  attrs_.projects = true;
  attrs_.out = {.n = 1, .dtype = DType::bf16};
  const std::vector<uint64_t> turns = rope_turns(attrs_.rope.rope, nullptr);
  turns_.host.resize(turns.size() * 8);
  std::memcpy(turns_.host.data(), turns.data(), turns_.host.size());
  for (Tensor* live : {&rows_, &sequences_}) {
    live->host.resize(8, std::byte{0});
    live->host[0] =
        static_cast<std::byte>(live == &rows_ ? spec_.live : std::ssize(spec_.contexts));
  }
  const auto output = [](Tensor& t, DType dtype, const Shape& shape) {
    t.dtype = dtype;
    t.shape = shape;
    t.host.assign(static_cast<size_t>(bytes_of(dtype, shape.elems())), std::byte{0xff});
  };
  output(sum_, DType::f32, {T, C});
  output(attended_, DType::bf16, {T, heads * D});
  output(projected_, DType::bf16, {T, s.outputs});
  set_reference(attrs_.attention);
}

// Pages in any order, and caches in which nobody wrote behind the sequences' older keys.
void FusedCase::make_sequences() {
  const FusedShape& s = spec_.shape;
  const auto in = [&](BlockInput i) -> Tensor& { return inputs_[at(i)]; };
  const auto S = std::ssize(spec_.contexts), T = static_cast<int64_t>(s.tokens);
  int64_t most = 0;
  for (const int context : spec_.contexts) {
    most = std::max<int64_t>(most, (context + s.page_size - 1) / s.page_size);
  }
  const int64_t stride = most + 2, pages = S * stride;
  std::vector<int32_t> table(static_cast<size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  std::mt19937_64 rng(spec_.seed);
  std::shuffle(table.begin(), table.end(), rng);
  const auto place = [&](int64_t sequence, int64_t key) {
    return table[static_cast<size_t>(sequence * stride + key / s.page_size)] * s.page_size +
           key % s.page_size;
  };
  // Tokens that are not live, and sequences, have numbers that would be noticed.
  std::vector<int32_t> positions(static_cast<size_t>(T), 1 << 20), slots(static_cast<size_t>(T), 0);
  std::vector<int32_t> q_start(static_cast<size_t>(T) + 1, 1 << 20), kv_len(static_cast<size_t>(T));
  const Shape cache{pages, s.page_size, s.kv_heads, s.head_dim};
  for (const auto which : {BlockInput::cache_k, BlockInput::cache_v}) {
    spec_.aligned ? fill(in(which), s.cache, cache, .01f, 1) : fill(in(which), s.cache, cache, 1);
  }
  size_t token = 0;
  q_start[0] = 0;
  for (int64_t i = 0; i < S; ++i) {
    const int context = spec_.contexts[static_cast<size_t>(i)];
    const int older = context - spec_.fresh[static_cast<size_t>(i)];
    for (int key = older; key < std::max(context, older + 1); ++key, ++token) {
      positions[token] = std::max(0, key);
      slots[token] = key < 0 ? -1 : static_cast<int32_t>(place(i, key));
    }
    q_start[static_cast<size_t>(i) + 1] = static_cast<int32_t>(token);
    kv_len[static_cast<size_t>(i)] = context;
    const int64_t row = s.kv_heads * s.head_dim * 2;
    for (int64_t key = std::max(0, older); key < stride * s.page_size; ++key) {
      for (const auto which : {BlockInput::cache_k, BlockInput::cache_v}) {
        std::memset(in(which).host.data() + place(i, key) * row, 0xff, static_cast<size_t>(row));
      }
    }
  }
  table.resize(static_cast<size_t>(T * stride));
  ints(in(BlockInput::positions), {T}, positions);
  ints(in(BlockInput::slots), {T}, slots);
  ints(in(BlockInput::q_start), {T + 1}, q_start);
  ints(in(BlockInput::kv_len), {T}, kv_len);
  ints(in(BlockInput::page_table), {T, stride}, table);
}

void FusedCase::set_reference(const ops::AttentionAttrs& attention) {
  const auto sizes = [](const Tensor& t) {
    return std::vector<std::byte>(t.host.size(), std::byte{0xff});
  };
  BatchPart part = {{}, {.token = spec_.live, .sequence = std::ssize(spec_.contexts), .row = 1}};
  for (const bool projects : {false, true}) {
    ops::AttentionBlockAttrs attrs = attrs_;
    attrs.attention = attention;
    attrs.projects = projects;
    reference_.sum = sizes(sum_);
    std::vector<std::byte>& y = projects ? reference_.projected : reference_.attended;
    y = sizes(projects ? projected_ : attended_);
    reference_.cache_k = inputs_[at(BlockInput::cache_k)].host;
    reference_.cache_v = inputs_[at(BlockInput::cache_v)].host;
    std::vector<TensorView> in, out;
    for (Tensor& t : inputs_) in.push_back(t.view());
    in[at(BlockInput::cache_k)].data = reference_.cache_k.data();
    in[at(BlockInput::cache_v)].data = reference_.cache_v.data();
    if (!projects) in.resize(ops::kBlockInputs);
    if (adds()) out.push_back(make_view(reference_.sum.data(), DType::f32, sum_.shape));
    out.push_back(make_view(y.data(), DType::bf16, projects ? projected_.shape : attended_.shape));
    const Op op = {.attrs = Attrs::of(attrs)};
    ops::kAttentionBlock.reference({&op, in, out, BatchAxis::token, &part});
  }
}

void FusedCase::upload() {
  const auto put = [](Tensor& t) {
    if (t.host.empty()) return;
    if (t.device == nullptr) {
      t.device = std::make_unique<CudaMemory>(0, static_cast<int64_t>(t.host.size()));
    }
    check_cuda(cudaMemcpy(t.device->data(), t.host.data(), t.host.size(), cudaMemcpyHostToDevice),
               "a test's operand");
  };
  for (Tensor& t : inputs_) put(t);
  for (Tensor* t : {&turns_, &rows_, &sequences_, &sum_, &attended_, &projected_}) put(*t);
}

FusedArgs FusedCase::args() {
  const auto f32 = [&](BlockInput i) { return inputs_[at(i)].at<const float>(); };
  const auto bf16 = [&](BlockInput i) { return inputs_[at(i)].at<__nv_bfloat16>(); };
  const auto i32 = [&](BlockInput i) { return inputs_[at(i)].at<const int32_t>(); };
  FusedArgs a{};
  a.rows = rows_.at<const int64_t>();
  a.sequences = sequences_.at<const int64_t>();
  if (spec_.shape.normed) a.a = f32(BlockInput::a);
  if (!spec_.shape.normed) a.normed = bf16(BlockInput::a);
  a.b = bf16(BlockInput::b);
  a.norm_w = f32(BlockInput::norm);
  a.sum = adds() ? sum_.at<float>() : nullptr;
  constexpr BlockInput kWeights[] = {BlockInput::wq, BlockInput::wk, BlockInput::wv,
                                     BlockInput::wo};
  constexpr BlockInput kBiases[] = {BlockInput::bq, BlockInput::bk, BlockInput::bv, BlockInput::bo};
  for (int i = 0; i < 4; ++i) a.w[i] = bf16(kWeights[i]), a.bias[i] = f32(kBiases[i]);
  a.position = i32(BlockInput::positions);
  a.slot = i32(BlockInput::slots);
  a.q_start = i32(BlockInput::q_start);
  a.kv_len = i32(BlockInput::kv_len);
  a.table_stride = static_cast<int32_t>(inputs_[at(BlockInput::page_table)].shape[1]);
  a.page_table = i32(BlockInput::page_table);
  a.turns = turns_.at<const uint64_t>();
  a.q_norm = f32(BlockInput::q_norm);
  a.k_norm = f32(BlockInput::k_norm);
  a.cache_k = bf16(BlockInput::cache_k);
  a.cache_v = bf16(BlockInput::cache_v);
  const Shape& cache = inputs_[at(BlockInput::cache_k)].shape;
  a.num_slots = static_cast<int32_t>(cache[0] * cache[1]);
  a.pairs = static_cast<int32_t>(attrs_.rope.rope.rotary_dim / 2);
  a.window = spec_.window;
  a.factor = 1;
  a.scale = attrs_.attention.scale;
  a.eps = attrs_.qkv.norm.eps;
  a.qk_eps = attrs_.rope.eps;
  a.interleaved = spec_.interleaved;
  return a;
}

std::vector<std::byte> FusedCase::repeat(const FusedConfig& config, int times) {
  Tensor& y = config.scope == FusedScope::projected ? projected_ : attended_;
  FusedArgs a = args();
  a.out = y.at<__nv_bfloat16>();
  const FusedAttention block(spec_.shape, config, a, 0);
  for (int i = 0; i < times; ++i) block.launch({});
  check_cuda(cudaDeviceSynchronize(), "a fused block");
  std::vector<std::byte> result;
  const auto get = [&](Tensor& t) {
    std::vector<std::byte> bytes(t.host.size());
    check_cuda(cudaMemcpy(bytes.data(), t.device->data(), bytes.size(), cudaMemcpyDeviceToHost),
               "a test's result");
    result.insert(result.end(), bytes.begin(), bytes.end());
  };
  get(sum_);
  get(y);
  get(inputs_[at(BlockInput::cache_k)]);
  get(inputs_[at(BlockInput::cache_v)]);
  return result;
}

std::vector<std::byte> FusedCase::run(const FusedConfig& config) {
  upload();
  return repeat(config, 1);
}

std::span<const std::byte> FusedCase::row_of(const std::vector<std::byte>& output, FusedScope scope,
                                             int token) const {
  const auto& y = scope == FusedScope::projected ? projected_.host : attended_.host;
  const size_t row = y.size() / static_cast<size_t>(spec_.shape.tokens);
  return std::span(output).subspan(sum_.host.size() + static_cast<size_t>(token) * row, row);
}

void FusedCase::spoil(int token) {
  Tensor& a = inputs_[at(BlockInput::a)];
  const size_t row = a.host.size() / static_cast<size_t>(spec_.shape.tokens);
  std::memset(a.host.data() + static_cast<size_t>(token) * row, 0xff, row);
}

void FusedCase::empty(int sequence) {
  const auto set = [&](BlockInput i, int32_t value) {
    reinterpret_cast<int32_t*>(inputs_[at(i)].host.data())[sequence] = value;
  };
  set(BlockInput::kv_len, 0);
  set(BlockInput::slots, -1);
}

std::string FusedCase::check(const std::vector<std::byte>& output, FusedScope scope) const {
  const bool projects = scope == FusedScope::projected;
  const std::vector<std::byte>& y = projects ? reference_.projected : reference_.attended;
  size_t begin = 0;
  const auto next = [&](size_t bytes) {
    begin += bytes;
    return std::vector<std::byte>(output.begin() + static_cast<int64_t>(begin - bytes),
                                  output.begin() + static_cast<int64_t>(begin));
  };
  const std::vector<std::byte> sum = next(reference_.sum.size());
  if (adds() && distance(DType::f32, sum, reference_.sum) > 1e-6) return "the sum differs";
  const double d = distance(DType::bf16, next(y.size()), y);
  if (!(d < 8e-3)) return fmt::format("the result is {:.2g} away", d);
  for (const auto* want : {&reference_.cache_k, &reference_.cache_v}) {
    const std::vector<std::byte> got = next(want->size());
    const double its = distance(spec_.shape.cache, got, *want);
    if (!(its < 4e-3)) return fmt::format("a cache is {:.2g} away", its);
    // All but the new rows have the bytes that they had.
    const int64_t row = spec_.shape.kv_heads * spec_.shape.head_dim * 2;
    int64_t rows = 0;
    for (int64_t i = 0; i < std::ssize(got) / row; ++i) {
      rows +=
          std::memcmp(got.data() + i * row, want->data() + i * row, static_cast<size_t>(row)) != 0;
    }
    if (rows > spec_.live) return fmt::format("{} rows of a cache differ", rows);
  }
  return "";
}

}  // namespace braid::cuda::test
