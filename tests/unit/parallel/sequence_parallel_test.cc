// A model's tokens divided over ranks: what the lowering makes of it by naming a mode.
#include "braid/parallel/sequence_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/traffic.h"
#include "unit/parallel/decoder_program.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_decoder;

SequenceMesh mesh_of(SpMode mode, const char* topology) {
  return sequence_mesh(mode, parse_topology(topology), kHq);
}

std::vector<std::string> kinds(const Program& program) {
  std::vector<std::string> result;
  for (const Op& op : program.ops) result.emplace_back(op.def->kind);
  return result;
}

const Op& first_op(const Program& program, const OpDef& def) {
  return *std::ranges::find(program.ops, &def, &Op::def);
}

TEST(SequenceParallel, OneLayerOpByOp) {
  const Program logical = decoder(7, 1);
  const SequenceLayout layout = even_zigzag_layout(7, 2);
  const auto ranks =
      lower(logical, sequence_parallel(logical, mesh_of(SpMode::ring, "1x2"), layout, layout));
  ASSERT_EQ(ranks.size(), 2u);
  for (const RankProgram& rank : ranks) {
    const Program& p = rank.program;
    EXPECT_THAT(
        kinds(p),
        ElementsAre("embedding", "rms_norm", "linear", "rope", "rope", "kv_append", "to_sequence",
                    "kv_read", "sync", "pull", "buffers", "segment_attention", "segment_attention",
                    "sync", "to_tokens", "linear", "add", "rms_norm", "linear", "gated", "linear",
                    "add", "pick_rows", "all_reduce", "rms_norm", "linear", "all_gather"));
    EXPECT_EQ(p.capacity.shard, 4);
    EXPECT_EQ(p.capacity.token, 7);
    const auto type = [&](const char* name) { return to_string(p.value(*p.find(name)).type); };
    EXPECT_EQ(type("ids"), "i32[shard=4]");
    EXPECT_EQ(type("rows"), "i32[row=3]");
    EXPECT_EQ(type("kv_slots"), "i32[4]");
    EXPECT_EQ(type("layers.0.attn.q"),
              to_string(logical.value(*logical.find("layers.0.attn.q")).type))
        << "weights are whole";
    EXPECT_EQ(type("layers.0.k"), to_string(logical.value(*logical.find("layers.0.k")).type))
        << "a cache has room for all";
    EXPECT_EQ(first_op(p, ops::kSegmentAttention).scope, "layers.0.attn.attend");
    const auto& attrs = first_op(p, ops::kSegmentAttention).attrs.as<ops::SegmentAttentionAttrs>();
    EXPECT_EQ(attrs.window_right, 0);
    EXPECT_EQ(attrs.window_left, ops::kUnlimited);
    EXPECT_EQ(attrs.group, kHq / kHkv);
  }
}

// What differs between the modes is attention alone.
TEST(SequenceParallel, AModeChangesAttentionAlone) {
  const Program logical = decoder(37, 2);
  std::vector<std::string> around;
  for (SpMode mode : kSpModes) {
    const SequenceMesh mesh = mesh_of(mode, "2x2");
    const SequenceLayout layout = even_zigzag_layout(37, 4);
    const auto ranks = lower(logical, sequence_parallel(logical, mesh, layout, layout));
    for (const RankProgram& rank : ranks) {
      std::vector<std::string> others;
      bool inside = false;
      for (const std::string& kind : kinds(rank.program)) {
        inside = inside || kind == "to_sequence";
        if (!inside) others.push_back(kind);
        inside = inside && kind != "to_tokens";
      }
      if (around.empty()) around = others;
      EXPECT_EQ(others, around) << to_string(mode);
      EXPECT_EQ(std::ranges::count(others, "attention"), 0);
    }
  }
}

// Keys of earlier steps, on whichever rank they are.
TEST(SequenceParallel, KeysHaveALayoutOfTheirOwn) {
  const Program logical = decoder(6, 1);
  const SequenceLayout q = even_zigzag_layout(6, 3, 20);
  SequenceLayout kv = contiguous_layout({0, 15, 5});
  for (size_t r = 0; r < 3; ++r) {
    kv.ranks[r].insert(kv.ranks[r].end(), q.ranks[r].begin(), q.ranks[r].end());
  }
  const auto ranks =
      lower(logical, sequence_parallel(logical, mesh_of(SpMode::ring, "1x3"), q, kv));
  const Program& p = ranks[0].program;
  EXPECT_EQ(to_string(p.value(*p.find("kv_slots")).type), "i32[17]");
  int64_t seen = 0;
  for (const Op& op : p.ops) {
    if (op.def != &ops::kSegmentAttention) continue;
    for (const auto& s : op.attrs.as<ops::SegmentAttentionAttrs>().kv) seen += s.rows;
  }
  EXPECT_EQ(seen, 26);
}

// Each attention moves what the closed form says, earlier keys included, and no other op reaches
// into another rank.
TEST(SequenceParallel, MovesWhatTheClosedFormSays) {
  constexpr int kLayers = 2;
  const Program logical = decoder(11, kLayers);
  for (SpMode mode : kSpModes) {
    const SequenceMesh mesh = mesh_of(mode, "2x2");
    SequenceAttention a{.q_heads = kHq, .kv_heads = kHkv, .head_dim = kD};
    a.q = even_zigzag_layout(11, 4, 9);
    a.kv = contiguous_layout({2, 0, 7, 0});
    for (size_t r = 0; r < 4; ++r) {
      a.kv.ranks[r].insert(a.kv.ranks[r].end(), a.q.ranks[r].begin(), a.q.ranks[r].end());
    }
    const auto want = attention_traffic(a, mesh);
    const auto ranks = lower(logical, sequence_parallel(logical, mesh, a.q, a.kv));
    for (const RankProgram& rank : ranks) {
      std::array<int64_t, 3> bytes{};
      for (const Op& op : rank.program.ops) {
        if (op.def == &ops::kSegmentAttention) {
          const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
          for (const ops::QSegment& s : attrs.q) {
            if (s.owner < 0) continue;
            bytes[static_cast<size_t>(mesh.topology.link(rank.rank, s.owner))] +=
                bytes_of(DType::f32, attrs.stored(s, 1, kD));
          }
        }
        if (op.def != &ops::kPull && op.def != &ops::kPush) continue;
        for (const ops::Move& move : op.attrs.as<ops::MoveAttrs>().moves) {
          bytes[static_cast<size_t>(mesh.topology.link(rank.rank, move.peer))] +=
              bytes_of(DType::f32, move.elems(kD));
        }
      }
      for (size_t link = 0; link < bytes.size(); ++link) {
        EXPECT_EQ(bytes[link], kLayers * want[static_cast<size_t>(rank.rank)][link])
            << to_string(mode) << ", rank " << rank.rank << ", link " << link;
      }
    }
  }
}

TEST(SequenceParallel, RefusesWhatDoesNotFit) {
  const Program logical = decoder(8, 1);
  const SequenceMesh mesh = mesh_of(SpMode::ulysses, "1x4");
  const SequenceLayout even = even_layout(8, 4);
  const auto refusal = [&](const SequenceLayout& q, const SequenceLayout& kv) -> std::string {
    try {
      lower(logical, sequence_parallel(logical, mesh, q, kv));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(even, even), "");
  EXPECT_THAT(refusal(even_layout(8, 3), even), HasSubstr("on 4 ranks"));
  EXPECT_THAT(refusal(contiguous_layout({5, 1, 1, 1}), even), HasSubstr("5 of 8 tokens on rank 0"));
}

TEST(SequenceParallel, CapsOnScoresAreRefused) {
  Program logical = decoder(8, 1);
  for (Op& op : logical.ops) {
    if (op.def != &ops::kAttention) continue;
    auto attrs = op.attrs.as<ops::AttentionAttrs>();
    attrs.softcap = 30;
    op.attrs = Attrs::of(attrs);
  }
  const SequenceLayout layout = even_layout(8, 2);
  LayoutPlan plan = sequence_parallel(logical, mesh_of(SpMode::ring, "1x2"), layout, layout);
  for (bool thins : {false, true}) {
    if (thins) plan.tokens->levels = key_levels({0.5}, {}, 2);
    try {
      lower(logical, plan);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(std::string(error.what()),
                  HasSubstr(thins ? "--keep: attention at 'layers.0.attn' caps its scores at 30"
                                  : "scores with a cap of 30, wanted none"));
    }
  }
}

TEST(GatherKv, ReadsEachKeyOnceIntoItsPlaceOnRankZero) {
  const Program logical = decoder(8, 2);
  const auto ranks = gather_kv(logical, contiguous_layout({0, 5, 0, 9}));
  ASSERT_EQ(ranks.size(), 4u);
  for (const RankProgram& rank : ranks) {
    const Program& p = rank.program;
    EXPECT_THAT(kinds(p), ElementsAre("kv_read", "sync", "pull", "sync", "kv_write", "kv_read",
                                      "sync", "pull", "sync", "kv_write"));
    EXPECT_EQ(to_string(p.value(*p.find("kv_slots")).type), "i32[9]");
    EXPECT_EQ(to_string(p.value(*p.find("to_slots")).type), "i32[14]");
    const auto& moves = first_op(p, ops::kPull).attrs.as<ops::MoveAttrs>().moves;
    if (rank.rank > 0) {
      EXPECT_TRUE(moves.empty());
      continue;
    }
    ASSERT_EQ(moves.size(), 4u) << "keys and values of two ranks";
    EXPECT_EQ(moves[2].peer, 3);
    EXPECT_EQ(moves[2].rows, 9);
    EXPECT_EQ(moves[2].dst_row, 5);
  }
}

}  // namespace
}  // namespace braid
