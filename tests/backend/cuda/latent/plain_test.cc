// latent_attention in its plain form, for a prompt alone, against the op's reference in f64.
#include "backend/cuda/dense/op_case.h"
#include "braid/ops/latent_attention.h"

namespace braid::cuda::test {
namespace {

struct Spec {
  int64_t H = 2, Dn = 128, Dr = 64, Dv = 128, R = 512;
  int64_t cached = 0, tokens = 256, capacity = 256;
  DType cache = DType::bf16;
  DType weights = DType::bf16;
  bool transposed = false;
  ops::RopePairing pairing = ops::RopePairing::interleaved;
};

void check_plain(const Spec& s, uint32_t seed) {
  SCOPED_TRACE(fmt::format("H {} D {}+{}/{} R {} cached {} tokens {} of {} {} {} seed {}", s.H,
                           s.Dn, s.Dr, s.Dv, s.R, s.cached, s.tokens, s.capacity, name(s.cache),
                           name(s.weights), seed));
  std::mt19937 random(seed);
  const int64_t T = s.capacity, keys = s.cached + s.tokens, BS = 32, P = ceil_div(keys, BS) + 1;
  const ops::LatentAttentionAttrs attrs = {
      .rope = {.head_dim = s.Dr, .rotary_dim = s.Dr, .pairing = s.pairing},
      .scale = 3 / std::sqrt(static_cast<float>(s.Dn * s.R)),
      .transposed = s.transposed};
  const auto token = BatchAxis::token, sequence = BatchAxis::sequence;
  const std::vector<ValueType> types = {
      {DType::bf16, {T, s.H * (s.Dn + s.Dr)}, token},
      {DType::i32, {T}, token},
      {s.weights, s.transposed ? Shape{s.H, s.R, s.Dn} : Shape{s.H, s.Dn, s.R}},
      {s.weights, {s.H, s.Dv, s.R}},
      {s.cache, {P + 2, BS, 1, s.R + s.Dr}},
      {DType::i32, {2}, sequence},
      {DType::i32, {1}, sequence},
      {DType::i32, {1, P}, sequence}};
  std::vector<std::unique_ptr<Operand>> in;
  std::vector<TensorView> host, device;
  for (const ValueType& type : types) in.push_back(std::make_unique<Operand>(type));
  for (const size_t i : {0u, 2u, 3u}) in[i]->fill(random);
  // Slots that the sequence does not have keep their NaN.
  const auto ints = [&](size_t i) { return in[i]->host().as<int32_t>(); };
  for (int64_t t = 0; t < T; ++t) ints(1)[t] = static_cast<int32_t>(s.cached + t);
  for (int64_t p = 0; p < P; ++p) ints(7)[p] = static_cast<int32_t>(P + 1 - p);
  std::normal_distribution<float> normal;
  for (int64_t j = 0; j < keys; ++j) {
    std::vector<float> row(static_cast<size_t>(s.R + s.Dr));
    for (float& x : row) x = normal(random);
    quantize_row(s.cache, row.data(), in[4]->host().row(ints(7)[j / BS] * BS + j % BS),
                 std::ssize(row));
  }
  ints(5)[0] = 0;
  ints(5)[1] = static_cast<int32_t>(s.tokens);
  ints(6)[0] = static_cast<int32_t>(keys);
  for (auto& operand : in) {
    operand->upload();
    host.push_back(operand->host());
    device.push_back(operand->device());
  }
  Operand want({DType::f32, {T, s.H * s.Dv}});
  Operand got({DType::bf16, {T, s.H * s.Dv}});
  std::vector<TensorView> host_out = {want.host()}, device_out = {got.device()};
  Op op{.def = &ops::kLatentAttention, .attrs = Attrs::of(attrs)};
  BatchPart part{{}, {.token = s.tokens, .sequence = 1, .row = 1}};
  ops::kLatentAttention.reference(
      {.op = &op, .in = host, .out = host_out, .axis = token, .part = &part});

  const KernelTable table = make_table();
  const Kernel& kernel = table.at(op.def->kind);
  const KernelInfo info = kernel.info(op, types, op.def->infer(op.attrs, types), table.device());
  EXPECT_EQ(info.name, "latent_attention.plain");
  CudaMemory workspace(0, info.workspace_bytes), device_part(0, sizeof(part));
  check_cuda(cudaMemset(workspace.data(), 0xff, static_cast<size_t>(workspace.bytes())), "");
  check_cuda(cudaMemcpy(device_part.data(), &part, sizeof(part), cudaMemcpyHostToDevice), "");
  const OpCall call{.op = &op, .in = device, .out = device_out, .axis = token, .part = &part};
  const BoundKernel bound =
      kernel.bind({.call = call,
                   .part = reinterpret_cast<const BatchPart*>(device_part.data()),
                   .workspace = workspace.data(),
                   .device = table.device()});
  std::vector<float> first;
  for (const bool pdl : {false, true}) {
    got.poison();
    check_cuda(cudaDeviceSynchronize(), "");
    bound({nullptr, pdl});
    check_cuda(cudaDeviceSynchronize(), "latent_attention");
    got.download();
    const std::vector<float> x = got.values(), y = want.values();
    if (pdl) {
      const size_t live = static_cast<size_t>(s.tokens * s.H * s.Dv);
      ASSERT_TRUE(std::equal(first.begin(), first.begin() + static_cast<int64_t>(live), x.begin()))
          << "two runs differ";
    }
    first = x;
    // Keys, values, weights and results are rounded to bf16.
    double size = 0;
    for (int64_t i = 0; i < s.tokens * s.H * s.Dv; ++i) {
      size = std::max(size, std::abs(double{y[static_cast<size_t>(i)]}));
    }
    for (int64_t i = 0; i < s.tokens * s.H * s.Dv; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_LE(std::abs(double{x[at]} - y[at]), 0x1p-6 * std::abs(y[at]) + 0x1p-7 * size)
          << "token " << i / (s.H * s.Dv) << " column " << i % (s.H * s.Dv) << ": " << x[at]
          << ", not " << y[at];
    }
  }
}

TEST(LatentPlain, MatchesTheReference) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  check_plain({}, ++seed);
  check_plain({.H = 3, .R = 128, .cached = 70, .tokens = 201}, ++seed);
  check_plain({.H = 16,
               .R = 64,
               .cached = 705,
               .tokens = 300,
               .capacity = 320,
               .cache = DType::f16,
               .weights = DType::q8_0,
               .pairing = ops::RopePairing::half},
              ++seed);
  check_plain({.H = 2,
               .Dn = 192,
               .Dv = 256,
               .R = 128,
               .cached = 33,
               .tokens = 257,
               .capacity = 288,
               .weights = DType::f32,
               .transposed = true},
              ++seed);
  check_plain({.H = 4, .Dn = 64, .R = 96, .tokens = 7, .cache = DType::f32}, ++seed);
}

}  // namespace
}  // namespace braid::cuda::test
