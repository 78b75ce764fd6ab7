#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "braid/ops/attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/fusion.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/tensor_parallel.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/verifier.h"

// A small decoder, lowered and fused for some ranks, and plans of it.
namespace braid::testing_schedule {

struct DecoderShape {
  int layers = 2;
  int64_t Hq = 9, Hkv = 3, D = 8, C = 24, F = 36, V = 50;
  int64_t pages = 8, page_size = 16, pages_per_sequence = 4;
};

inline Program decoder(const Extents& capacity, const DecoderShape& d = {}) {
  Builder b("decoder", capacity);
  const int64_t T = capacity.token, S = capacity.sequence;
  const auto tokens = [&](const char* name) {
    return b.input(name, {DType::i32, {T}, BatchAxis::token});
  };
  const ValueId ids = tokens("token_ids"), positions = tokens("positions");
  const ops::AttentionMeta meta = {
      tokens("slots"), b.input("q_start", {DType::i32, {S + 1}, BatchAxis::sequence}),
      b.input("kv_len", {DType::i32, {S}, BatchAxis::sequence}),
      b.input("page_table", {DType::i32, {S, d.pages_per_sequence}, BatchAxis::sequence})};
  const ValueId rows = b.input("rows", {DType::i32, {capacity.row}, BatchAxis::row});
  const auto w = [&](const std::string& name, int64_t n, int64_t k) {
    return ops::LinearWeights{b.weight(name, {DType::f32, {n, k}})};
  };
  const auto norm = [&](const std::string& name, ValueId x) {
    return ops::rms_norm(b, x, b.weight(name, {DType::f32, {d.C}}), {.group = d.C});
  };
  const ops::RopeAttrs rope = {.head_dim = d.D, .rotary_dim = d.D};
  ValueId x = ops::embedding(b, ids, b.weight("token_embd", {DType::f32, {d.V, d.C}}));
  for (int i = 0; i < d.layers; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    const auto layer_scope = b.scope(layer);
    {
      const auto scope = b.scope("attn");
      const auto qkv = ops::linears(
          b, norm(layer + ".attn_norm", x),
          {w(layer + ".attn.q", d.Hq * d.D, d.C), w(layer + ".attn.k", d.Hkv * d.D, d.C),
           w(layer + ".attn.v", d.Hkv * d.D, d.C)});
      const ValueType cache = {DType::f32, {d.pages, d.page_size, d.Hkv, d.D}};
      const ops::KvCache kv = {b.state(layer + ".kv.k", cache), b.state(layer + ".kv.v", cache)};
      const ValueId q = ops::rope(b, qkv[0], positions, kNoValue, rope);
      const ValueId k = ops::rope(b, qkv[1], positions, kNoValue, rope);
      ops::kv_append(b, k, qkv[2], meta, kv, d.D);
      const ValueId out = ops::attention(b, q, kv, meta, {.head_dim = d.D, .group = d.Hq / d.Hkv});
      x = ops::add(b, x, ops::linear(b, out, w(layer + ".attn.o", d.C, d.Hq * d.D)));
    }
    const auto scope = b.scope("mlp");
    const auto up =
        ops::linears(b, norm(layer + ".mlp_norm", x),
                     {w(layer + ".mlp.gate", d.F, d.C), w(layer + ".mlp.up", d.F, d.C)});
    const ValueId y = ops::gated(b, up[0], up[1], {});
    x = ops::add(b, x, ops::linear(b, y, w(layer + ".mlp.down", d.C, d.F)));
  }
  x = norm("output_norm", ops::gather_rows(b, x, rows));
  return b.finish({ops::linear(b, x, w("lm_head", d.V, d.C))});
}

// Scratch of some sizes, so that it takes part in plans.
class ScratchCatalog : public KernelCatalog {
 public:
  KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
    const bool any = op.def->kind == "attention" || op.def->kind == "linear";
    return {std::string(op.def->kind), any ? 1000 : 0};
  }
};

// A strategy made of functions.
struct TestStrategy : OpScheduler {
  std::function<void(PartitionRules&)> rules = [](PartitionRules&) {};
  std::function<void(ScheduleContext&)> body;

  std::string name() const override { return "test"; }
  void partition(PartitionRules& r) const override { rules(r); }
  void schedule(ScheduleContext& ctx) const override { body(ctx); }
};

inline TestStrategy strategy(std::function<void(ScheduleContext&)> body,
                             const std::vector<std::vector<std::string>>& kinds = {}) {
  TestStrategy s;
  s.rules = [kinds](PartitionRules& rules) {
    for (const auto& kind : kinds) rules.split_func(kind);
  };
  s.body = std::move(body);
  return s;
}

// Each op is a task; attention runs on the side stream, communication on its own.
inline TestStrategy three_streams() {
  return strategy(
      [](ScheduleContext& ctx) {
        while (!ctx.done()) {
          for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
            for (const Task& task : ctx.ready(mb)) {
              const Stream stream = task.communicates()    ? Stream::comm
                                    : task.is("attention") ? Stream::side
                                                           : Stream::compute;
              ctx.execute({task}, {.stream = stream});
            }
          }
        }
      },
      {{"attention"}, {"all_reduce"}, {"reduce_scatter"}, {"all_gather"}});
}

// Products and attention of all micro-batches as one, everything else by itself.
inline TestStrategy merging() {
  return strategy(
      [](ScheduleContext& ctx) {
        const auto merges = [](const Task& t) { return t.is("linear") || t.is("attention"); };
        while (!ctx.done()) {
          bool moved = false;
          std::vector<Task> together;
          for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
            for (const Task& task : ctx.ready(mb)) {
              if (merges(task)) {
                together.push_back(task);
                continue;
              }
              ctx.execute({task}, {.stream = task.communicates() ? Stream::comm : Stream::compute});
              moved = true;
            }
          }
          if (!moved) ctx.execute(together, {.stream = Stream::side});
        }
      },
      {{"linear"}, {"attention"}, {"all_reduce"}, {"reduce_scatter"}, {"all_gather"}});
}

// Whole micro-batches, each on a stream of its own.
inline TestStrategy stream_each() {
  return strategy([](ScheduleContext& ctx) {
    for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
      while (!ctx.ready(mb).empty()) {
        ctx.execute(ctx.ready(mb), {.stream = kStreams[static_cast<size_t>(mb)]});
      }
    }
  });
}

struct PlanConfig {
  int ranks = 1;
  int micro_batches = 1;
  bool continues = true;  // micro-batches after the first are one sequence
  bool sharded = false;   // residual divided over tokens
  int64_t tokens = 12;    // capacity of each micro-batch
  int layers = 2;
  bool fused = true;  // by the fusions that run everywhere
};

struct Planned : Plan {
  std::vector<MicroBatch> micro_batches;

  void verify() const { braid::verify(*this); }
  // The first launch that runs an op of the kind for a micro-batch, from `from` on.
  int find(std::string_view kind, int micro_batch = 0, int from = 0, size_t rank = 0) const {
    const Schedule& s = schedules[rank];
    for (int i = from; i < static_cast<int>(s.launches.size()); ++i) {
      const Launch& l = s.launches[static_cast<size_t>(i)];
      if (s.op(programs[rank], l).def->kind == kind && l.micro_batch <= micro_batch &&
          micro_batch < l.micro_batch_end()) {
        return i;
      }
    }
    ADD_FAILURE() << "no " << kind << " of " << micro_batch;
    return 0;
  }
};

inline Planned planned(const OpScheduler& strategy, const PlanConfig& c) {
  Planned p;
  Extents capacity;
  for (int i = 0; i < c.micro_batches; ++i) {
    const int64_t tokens = round_up(c.tokens, c.ranks);
    p.micro_batches.push_back(
        {{.token = tokens, .sequence = 8, .row = 4, .shard = tokens / c.ranks},
         c.continues && i > 0});
    capacity += p.micro_batches.back().capacity;
  }
  const Program logical = decoder(capacity, {.layers = c.layers});
  LayoutPlan layout = tensor_parallel(logical, c.ranks);
  layout.token_sharded_residual = c.sharded && c.ranks > 1;
  for (const RankProgram& rank : lower(logical, layout)) {
    p.programs.push_back(c.fused ? fuse(rank.program, fusions()) : rank.program);
  }
  const ScratchCatalog catalog;
  plan_schedules(p, strategy,
                 {.catalogs = {&catalog},
                  .micro_batches = p.micro_batches,
                  .topology = {.devices = c.ranks},
                  .price = {}});
  return p;
}

// The Schedule of one rank's Program.
inline Schedule schedule_of(const Program& program, const OpScheduler& strategy,
                            const KernelCatalog& catalog, std::vector<MicroBatch> micro_batches) {
  Plan plan{{program}, {}};
  plan_schedules(plan, strategy,
                 {.catalogs = {&catalog},
                  .micro_batches = std::move(micro_batches),
                  .topology = {},
                  .price = {}});
  return std::move(plan.schedules[0]);
}

// Runs `step` and expects an Error whose message holds all of `parts`.
inline void expect_refused(const std::function<void()>& step,
                           const std::vector<std::string>& parts) {
  try {
    step();
    ADD_FAILURE() << "accepted, and " << testing::PrintToString(parts) << " was expected";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    for (const std::string& part : parts) EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
}

}  // namespace braid::testing_schedule
