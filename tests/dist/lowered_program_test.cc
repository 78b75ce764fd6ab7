// Whole lowered Programs, op by op on every rank: a residual stream divided over tokens or not, and
// each replacement, give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "braid/ops/fusion.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/tensor_parallel.h"
#include "braid/tensor/quant.h"
#include "dist/rank_kernels.h"
#include "unit/parallel/decoder_program.h"

namespace braid::testing_dist {
namespace {

constexpr int64_t kTokens = 12;

std::vector<std::byte> weight_bytes(const Value& value, uint64_t seed) {
  const int64_t rows = value.type.shape.rows(), cols = value.type.shape[-1];
  const int64_t row_bytes = bytes_of(value.type.dtype, cols);
  const uint64_t call = seed + std::hash<std::string>()(value.name);
  const float spread = value.type.shape.rank() == 1 ? 1 : 0.2f;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes));
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < cols; ++c) {
      row[static_cast<size_t>(c)] = spread * fabric::float_of(call, static_cast<int>(i), c);
    }
    quantize_row(value.type.dtype, row.data(), bytes.data() + i * row_bytes, cols);
  }
  return bytes;
}

struct Model {
  explicit Model(uint64_t seed) : seed(seed) {
    for (const Value& value : logical.values) {
      if (value.kind == ValueKind::weight) weights[value.name] = weight_bytes(value, seed);
    }
  }
  const uint64_t seed;
  const Program logical = testing_decoder::decoder(kTokens, 2);
  std::map<std::string, std::vector<std::byte>> weights;
};

// Two prompts of together n tokens; logits of the last token of each and of the first of all.
std::map<std::string, std::vector<int32_t>> inputs(int64_t n, uint64_t seed) {
  const auto first = static_cast<int32_t>(std::max<int64_t>(1, n / 3)),
             all = static_cast<int32_t>(n);
  std::map<std::string, std::vector<int32_t>> in = {{"q_start", {0, first, all}},
                                                    {"kv_len", {first, all - first}},
                                                    {"pages", {0, 1, 0, 0, 2, 3, 0, 0}},
                                                    {"rows", {0, first - 1, all - 1}}};
  for (int32_t t = 0; t < all; ++t) {
    const int32_t position = t < first ? t : t - first;
    in["ids"].push_back(static_cast<int32_t>(fabric::mix(seed + static_cast<uint64_t>(t)) % 100));
    in["positions"].push_back(position);
    in["slots"].push_back(position + (t < first ? 0 : 32));
  }
  return in;
}

// Runs one rank's Program as it stands and returns the logits.
std::vector<float> run_program(RankKernels& rank, const Program& program,
                               const std::vector<Placement>& placements, const Model& model,
                               int64_t n) {
  const size_t count = program.values.size();
  std::vector<std::vector<std::byte>> memory(count);
  std::vector<TensorView> views(count);
  auto in = inputs(n, model.seed);
  for (size_t i = 0; i < count; ++i) {
    const Value& value = program.values[i];
    const ValueType& type = value.type;
    const int64_t bytes = type.shape.rows() * bytes_of(type.dtype, type.shape[-1]);
    if (value.kind == ValueKind::weight) {
      const Value& whole = model.logical.value(*model.logical.find(value.name));
      views[i] = make_view(const_cast<std::byte*>(model.weights.at(value.name).data()), type.dtype,
                           whole.type.shape);
      if (const Placement& p = placements[i]; p.is_shard()) {
        const Range part = p.parts[static_cast<size_t>(rank.rank())];
        views[i] = p.dim == 0 ? slice_rows(views[i], part.begin, part.end)
                              : slice_cols(views[i], part.begin, part.end);
      }
      continue;
    }
    // What no op writes may not be read: poison, but for a cache, whose unused slots may be.
    memory[i].assign(static_cast<size_t>(bytes),
                     value.kind == ValueKind::state ? std::byte{0} : std::byte{0xff});
    if (value.kind == ValueKind::input) {
      const auto& data = in.at(value.name);
      std::memcpy(memory[i].data(), data.data(),
                  std::min(data.size() * sizeof(int32_t), memory[i].size()));
    }
    views[i] = make_view(memory[i].data(), type.dtype, type.shape);
  }
  BatchPart part = {
      {},
      {.token = n, .sequence = 2, .row = 3, .shard = even_part(n, rank.P(), rank.rank()).size()}};
  std::vector<std::byte> workspace;
  for (const Op& op : program.ops) {
    std::vector<TensorView> ins, outs;
    for (ValueId id : op.inputs) {
      ins.push_back(id == kNoValue ? TensorView{} : views[static_cast<size_t>(id)]);
    }
    for (ValueId id : op.outputs) outs.push_back(views[static_cast<size_t>(id)]);
    const OpCall call = {&op, ins, outs, program.value(op.inputs[0]).type.axis, &part};
    const KernelInfo info = rank.table.find(program, op, Stream::compute, program.capacity);
    workspace.assign(static_cast<size_t>(info.workspace_bytes) + 64, std::byte{0xff});
    std::byte* aligned = workspace.data();
    while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
    const cpu::BoundKernel kernel =
        rank.table.at(op.def->kind)
            .bind({.call = call, .workspace = aligned, .threads = rank.pool.threads()});
    rank.pool.run([&](const cpu::Team& team) { kernel(team); });
  }
  const TensorView& logits = views[static_cast<size_t>(program.outputs.at(0))];
  return {logits.as<float>(), logits.as<float>() + 3 * logits.cols()};
}

using Logits = std::vector<float>;

// Of every rank, for the program that `rewrite` makes of the lowered one.
template <class Rewrite>
std::vector<Logits> logits_of(int P, int threads, bool token_sharded, int64_t n, const Model& model,
                              Rewrite&& rewrite) {
  LayoutPlan plan = tensor_parallel(model.logical, P);
  plan.token_sharded_residual = token_sharded;
  const std::vector<RankProgram> lowered = lower(model.logical, plan);
  std::vector<Logits> logits(static_cast<size_t>(P));
  fabric::run_ranks({.ranks = P, .threads_per_rank = threads}, [&](fabric::Endpoint& endpoint) {
    RankKernels rank(endpoint, {.threads = threads, .slot_bytes = 1024});
    const RankProgram& mine = lowered[static_cast<size_t>(endpoint.rank())];
    logits[static_cast<size_t>(endpoint.rank())] =
        run_program(rank, rewrite(mine.program), mine.placements, model, n);
  });
  return logits;
}

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Program plain(const Program& program) {
  return program;
}

TEST(LoweredProgram, LayoutsAndReplacementsGiveTheSameBits) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Model model(seed);
  for (int64_t n : {int64_t{2}, int64_t{5}, kTokens}) {
    const Logits one = logits_of(1, 1, false, n, model, plain)[0];
    const float largest =
        std::abs(*std::ranges::max_element(one, {}, [](float x) { return std::abs(x); }));
    ASSERT_TRUE(std::isfinite(largest) && largest > 0);
    for (const auto& [P, threads] : {std::pair{2, 1}, {2, 2}, {3, 1}, {4, 1}}) {
      SCOPED_TRACE(testing::Message() << n << " tokens, " << P << " ranks of " << threads);
      const std::vector<Logits> whole = logits_of(P, threads, false, n, model, plain);
      // f32 sums of at most 256 products in another order: 256 * 2^-24 of their magnitudes, eight
      // linears deep, with room for the norms between them.
      for (size_t i = 0; i < one.size(); ++i) {
        ASSERT_NEAR(whole[0][i], one[i], 8 * 256 * 0x1p-24 * 4 * largest) << "at " << i;
      }
      for (const Logits& rank : whole) EXPECT_TRUE(same_bits(rank, whole[0]));
      const auto expect_same = [&](bool token_sharded, std::string_view replacement) {
        const auto rewrite = [&](const Program& program) {
          const Program fused = fuse(program, fusions());
          if (replacement.empty()) return fused;
          Program replaced = fuse(fused, {find_replacement(replacement), 1});
          EXPECT_LT(replaced.ops.size(), fused.ops.size());
          return replaced;
        };
        for (const Logits& rank : logits_of(P, threads, token_sharded, n, model, rewrite)) {
          EXPECT_TRUE(same_bits(rank, whole[0]))
              << "'" << replacement << "', residual divided: " << token_sharded;
        }
      };
      for (const Logits& rank : logits_of(P, threads, true, n, model, plain)) {
        EXPECT_TRUE(same_bits(rank, whole[0])) << "residual divided over tokens";
      }
      expect_same(false, "");
      expect_same(true, "");
      expect_same(false, "linear_all_reduce");
      expect_same(false, "all_reduce_add_rms_norm");
      expect_same(true, "reduce_scatter_add_rms_norm_all_gather");
    }
  }
}

}  // namespace
}  // namespace braid::testing_dist
