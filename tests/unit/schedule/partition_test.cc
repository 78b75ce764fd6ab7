#include "braid/schedule/partition.h"

#include <random>

#include "unit/schedule/planned_decoder.h"

namespace braid::testing_schedule {
namespace {

Program two_ranks(int layers = 3) {
  const Program logical = decoder({8, 2, 2}, {.layers = layers});
  return fuse(lower(logical, tensor_parallel(logical, 2))[0].program, fusions());
}

std::vector<Partition> of_rule(const std::vector<Partition>& all, std::string_view rule) {
  std::vector<Partition> result;
  for (const Partition& p : all) {
    if (p.rule == rule) result.push_back(p);
  }
  return result;
}

std::vector<std::string> kinds(const Program& program, const Partition& p) {
  std::vector<std::string> result;
  for (int i = p.begin; i < p.end; ++i) {
    result.emplace_back(program.ops[static_cast<size_t>(i)].def->kind);
  }
  return result;
}

void expect_covers(const Program& program, const std::vector<Partition>& partitions) {
  int end = 0;
  for (const Partition& p : partitions) {
    ASSERT_EQ(p.begin, end);
    ASSERT_LT(p.begin, p.end);
    end = p.end;
    bool all = true;
    for (int i = p.begin; i < p.end; ++i)
      all = all && communicates(program.ops[static_cast<size_t>(i)]);
    ASSERT_EQ(p.communicates, all);
    ASSERT_EQ(p.scope, program.ops[static_cast<size_t>(p.begin)].scope);
  }
  ASSERT_EQ(end, std::ssize(program.ops));
}

TEST(Partition, NoRuleIsOnePartition) {
  const Program program = two_ranks();
  const auto all = PartitionRules().apply(program);
  ASSERT_EQ(all.size(), 1u);
  expect_covers(program, all);
  EXPECT_EQ(all[0].rule, "");
  EXPECT_TRUE(PartitionRules().apply(Program{}).empty());
}

TEST(Partition, ModulesByPattern) {
  const Program program = two_ranks();
  PartitionRules rules;
  rules.split_module("layers.*.mlp");
  const auto all = rules.apply(program);
  expect_covers(program, all);
  const auto mlps = of_rule(all, "layers.*.mlp");
  ASSERT_EQ(mlps.size(), 3u) << "one for each layer";
  for (size_t i = 0; i < mlps.size(); ++i) {
    EXPECT_EQ(mlps[i].scope, fmt::format("layers.{}.mlp", i));
    for (int o = mlps[i].begin; o < mlps[i].end; ++o) {
      EXPECT_EQ(program.ops[static_cast<size_t>(o)].scope, mlps[i].scope);
    }
  }
  int inside = 0;
  for (const Op& op : program.ops) inside += op.scope.ends_with(".mlp");
  int held = 0;
  for (const Partition& p : mlps) held += p.end - p.begin;
  EXPECT_EQ(held, inside);
}

TEST(Partition, PatternsNameWholeScopesAndWhatLiesInThem) {
  const Program program = two_ranks();
  const auto count = [&](std::string_view pattern) {
    PartitionRules rules;
    rules.split_module(std::string(pattern));
    const auto all = rules.apply(program);
    expect_covers(program, all);
    return of_rule(all, pattern).size();
  };
  EXPECT_EQ(count("layers.*"), 3u);
  EXPECT_EQ(count("layers"), 1u) << "all layers, which are neighbours";
  EXPECT_EQ(count("*"), 1u) << "whatever has a scope";
  EXPECT_EQ(count("*.1.*"), 2u) << "attn and mlp of layer 1";
  EXPECT_EQ(count("layers.1.attn"), 1u);
  EXPECT_EQ(count("layers.1.att"), 0u) << "no part of a name";
  EXPECT_EQ(count("layers.1.attn.q"), 0u) << "longer than any scope";
  EXPECT_EQ(count("attn"), 0u) << "scopes are named from the top";
  EXPECT_EQ(count("layers."), 0u);
}

TEST(Partition, FunctionsByKind) {
  const Program program = two_ranks();
  PartitionRules rules;
  rules.split_func({"all_reduce"});
  const auto all = rules.apply(program);
  expect_covers(program, all);
  const auto found = of_rule(all, "all_reduce");
  EXPECT_EQ(found.size(), 6u);
  for (const Partition& p : found) {
    EXPECT_EQ(kinds(program, p), std::vector<std::string>{"all_reduce"});
    EXPECT_TRUE(p.communicates);
  }
}

TEST(Partition, FunctionsBySequence) {
  const Program program = two_ranks();
  PartitionRules rules;
  rules.split_func({"linear", "all_reduce", "add_rms_norm"});
  rules.split_func({"linear", "all_reduce"});
  rules.split_func({"linear"});
  const auto all = rules.apply(program);
  expect_covers(program, all);
  // Every layer ends in the first one, but the last, whose sum is not normalized before rows are
  // gathered.
  EXPECT_EQ(of_rule(all, "linear+all_reduce+add_rms_norm").size(), 5u);
  EXPECT_EQ(of_rule(all, "linear+all_reduce").size(), 1u);
  EXPECT_EQ(of_rule(all, "linear").size(), 4u);
  EXPECT_FALSE(of_rule(all, "linear+all_reduce")[0].communicates) << "not all of it";
}

TEST(Partition, NeighboursOfOneKindAreEachTheirOwn) {
  Builder b("adds", {1, 1, 1});
  ValueId x = b.input("x", {DType::f32, {1, 8}, BatchAxis::token});
  for (int i = 0; i < 5; ++i) x = ops::add(b, x, x);
  const Program program = b.finish({x});
  PartitionRules one, two, none;
  one.split_func({"add"});
  EXPECT_EQ(one.apply(program).size(), 5u);
  two.split_func({"add", "add"});
  EXPECT_EQ(two.apply(program).size(), 3u) << "two pairs and what is left";
  none.split_func({});
  EXPECT_EQ(none.apply(program).size(), 1u) << "no kinds take nothing";
}

TEST(Partition, Marks) {
  Builder b("marked", {1, 1, 1});
  ValueId x = b.input("x", {DType::f32, {1, 8}, BatchAxis::token});
  const auto adds = [&](int n, const std::string& tag) {
    b.mark(tag);
    for (int i = 0; i < n; ++i) x = ops::add(b, x, x);
  };
  adds(1, ""), adds(2, "hot"), adds(3, "cold"), adds(1, ""), adds(2, "hot");
  const Program program = b.finish({x});
  PartitionRules rules;
  rules.mark("hot");
  const auto all = rules.apply(program);
  expect_covers(program, all);
  const auto hot = of_rule(all, "hot");
  ASSERT_EQ(hot.size(), 2u);
  EXPECT_EQ(hot[0].end - hot[0].begin, 2);
  EXPECT_EQ(all.size(), 4u) << "what no rule takes is one partition, whatever its tag";
}

TEST(Partition, TheFirstRuleWins) {
  const Program program = two_ranks();
  PartitionRules by_module;
  by_module.split_module("layers.1.*");
  by_module.split_func({"linear"});
  for (const Partition& p : of_rule(by_module.apply(program), "linear")) {
    EXPECT_FALSE(p.scope.starts_with("layers.1"));
  }
  PartitionRules by_kind;
  by_kind.split_func({"linear"});
  by_kind.split_module("layers.1.*");
  const auto all = by_kind.apply(program);
  expect_covers(program, all);
  for (const Partition& p : of_rule(all, "layers.1.*")) {
    for (const std::string& kind : kinds(program, p)) EXPECT_NE(kind, "linear");
  }
  // Also where a later sequence would reach into what an earlier rule takes.
  PartitionRules reaching;
  reaching.split_func({"all_reduce"});
  reaching.split_func({"linear", "all_reduce"});
  const auto reached = reaching.apply(program);
  expect_covers(program, reached);
  EXPECT_EQ(of_rule(reached, "all_reduce").size(), 6u);
  EXPECT_TRUE(of_rule(reached, "linear+all_reduce").empty());
}

TEST(Partition, RandomRulesHoldEveryOpOnce) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  const Program plain = two_ranks(2);
  for (int round = 0; round < 300; ++round) {
    Program program = plain;
    for (Op& op : program.ops) op.tag = rng() % 3 == 0 ? "a" : rng() % 3 == 0 ? "b" : "";
    struct Chosen {
      std::string module, tag;
      std::vector<std::string> kinds;
    };
    PartitionRules rules;
    std::vector<Chosen> chosen;
    for (size_t n = rng() % 5; n > 0; --n) {
      Chosen c;
      const Op& op = program.ops[rng() % program.ops.size()];
      switch (rng() % 3) {
        case 0:
          c.module = std::vector<std::string>{"layers.*", "*.0.*", "layers.1.mlp", "*"}[rng() % 4];
          rules.split_module(c.module);
          break;
        case 1:
          c.tag = rng() % 2 ? "a" : "b";
          rules.mark(c.tag);
          break;
        default:
          c.kinds = {std::string(op.def->kind)};
          if (rng() % 2) c.kinds.emplace_back(program.ops[rng() % program.ops.size()].def->kind);
          rules.split_func(c.kinds);
      }
      chosen.push_back(c);
    }
    const auto all = rules.apply(program);
    expect_covers(program, all);
    // An op that an earlier rule takes by itself is in no partition of a later one.
    for (const Partition& p : all) {
      for (int i = p.begin; i < p.end; ++i) {
        const Op& op = program.ops[static_cast<size_t>(i)];
        for (const Chosen& c : chosen) {
          const bool whole_scope =
              c.module == "*" || (c.module == "layers.1.mlp" && op.scope == c.module);
          const std::string rule = !c.module.empty() ? c.module : c.tag;
          if ((whole_scope && !op.scope.empty()) || (!c.tag.empty() && op.tag == c.tag) ||
              (c.kinds.size() == 1 && op.def->kind == c.kinds[0])) {
            EXPECT_EQ(p.rule, c.kinds.empty() ? rule : c.kinds[0]);
            break;
          }
          if (c.kinds.size() == 2 || c.module == "layers.*" || c.module == "*.0.*")
            break;  // may take it
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::testing_schedule
