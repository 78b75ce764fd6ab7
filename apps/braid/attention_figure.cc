// Attention alone as a step: StreamFusion's figures 9 and 12.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/engine/diffusion/random_source.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/linear.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/step_bench.h"

namespace braid::app {
namespace {

constexpr int64_t kNumbers = 64;  // of a token

std::string input_name(int64_t piece) {
  return fmt::format("x{}", piece);
}

// Sequences of a batch lie side by side in a token's row, where attention sees further heads.
Program attention_program(int64_t heads, const AttentionSize& size, DType dtype) {
  Builder b("attention", {});
  const int64_t C = heads * size.batch * size.head_dim;
  std::vector<ops::LinearWeights> weights;
  for (const char* name : {"q", "k", "v"}) {
    weights.push_back({b.weight(fmt::format("{}.{}", name, C), {dtype, {C, kNumbers}})});
  }
  ops::DenseAttentionInputs in;
  for (int64_t i = 0; i < size.pieces; ++i) {
    const ValueId x = b.input(input_name(i), {dtype, {size.tokens / size.pieces, kNumbers}});
    const auto qkv = ops::linears(b, x, weights, dtype);
    in.q.push_back(qkv[0]);
    in.k.push_back(qkv[1]);
    in.v.push_back(qkv[2]);
  }
  const auto D = static_cast<double>(size.head_dim);
  return b.finish(ops::dense_attention(
      b, in, {.head_dim = size.head_dim, .scale = static_cast<float>(1 / std::sqrt(D))}));
}

class AttentionStep : public BenchedStep {
 public:
  AttentionStep(int64_t heads, std::vector<AttentionSize> sizes, const RandomSource& weights,
                const NetworkConfig& network)
      : heads_(heads), sizes_(std::move(sizes)), network_("attention", weights, network) {}

  void begin(size_t i) override {
    at_ = i;
    const AttentionSize& size = sizes_[i];
    const int64_t rows = size.tokens / size.pieces;
    for (int64_t piece = 0; piece < size.pieces; ++piece) {
      network().write(input_name(piece),
                      normals(static_cast<uint64_t>(piece) + 1, rows * kNumbers));
    }
  }
  void run() override { network().run(); }
  void divide_by(const SequenceMesh& mesh, const std::string& schedule) override {
    network_.divide_by(mesh, schedule);
  }
  BoundNetwork& network() override {
    const AttentionSize& size = sizes_[at_];
    const auto make = [&] { return attention_program(heads_, size, network_.activations()); };
    const std::string key = fmt::format("{}", at_);
    if (!network_.mesh()) return network_.plan(key, make);
    return network_.plan(key, make, [&](const Program& program) {
      return row_parallel(program, *network_.mesh(), {{input_name(0)}});
    });
  }

 private:
  const int64_t heads_;
  const std::vector<AttentionSize> sizes_;
  Network network_;
  size_t at_ = 0;
};

}  // namespace

StepFamily attention_family(int64_t heads, const std::vector<AttentionSize>& sizes,
                            const BenchPlace& place) {
  std::vector<Program> programs;  // name the weights of all head sizes
  for (const AttentionSize& s : sizes) {
    programs.push_back(attention_program(heads, s, place.dtype()));
  }
  const auto weights = std::make_shared<RandomSource>("attention", programs);
  StepFamily family{
      .title = fmt::format("attention alone: {} heads, {}", heads, place.description()),
      .heads = heads,
      .random = &weights->weights(),
      .make =
          [=](const NetworkConfig& n) {
            return std::make_unique<AttentionStep>(heads, sizes, *weights, n);
          },
      .step = [=](size_t i) { return programs[i]; },
      .part = [=](size_t i) { return programs[i]; },
      .rows = {{input_name(0)}}};
  const bool batches = std::ranges::any_of(sizes, [](const auto& s) { return s.batch > 1; });
  for (const AttentionSize& s : sizes) {
    std::string name = fmt::format("{} tokens, D {}", s.tokens, s.head_dim);
    if (batches) name += fmt::format(", batch {}", s.batch);
    if (s.pieces > 1) name += fmt::format(", {} pieces", s.pieces);
    family.sizes.push_back(std::move(name));
  }
  return family;
}

}  // namespace braid::app
