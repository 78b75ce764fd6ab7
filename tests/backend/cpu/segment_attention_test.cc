// The CPU kernel of segment attention against its scalar reference, through the kernel table.
#include "braid/ops/segment_attention.h"
#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/register.h"

namespace braid::cpu {
namespace {

using namespace testing;

// Random segments over random values, some rows of which nothing reads or writes.
struct Case {
  explicit Case(uint32_t seed) : random(seed) {
    const auto pick = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    const int64_t D = std::array<int64_t, 6>{1, 5, 8, 16, 33, 64}[seed % 6];
    B = pick(1, 3);
    a.group = pick(1, 4);
    a.heads = pick(1, 5);
    a.head_offset = pick(0, a.group - 1);
    a.kv_heads = (a.heads - 1 + a.head_offset) / a.group + 1;
    a.scale = 0.7f / std::sqrt(static_cast<float>(D));
    if (pick(0, 1) == 0) a.window_right = pick(0, 9);
    if (pick(0, 2) == 0) a.window_left = pick(0, 40);
    a.load_state = pick(0, 1) == 1;
    a.finalize = pick(0, 1) == 1;
    a.num_q = static_cast<int>(pick(1, 2));
    const int pairs = static_cast<int>(pick(1, 3));
    int64_t state_rows = 0;
    std::vector<int64_t> out_rows(a.kFirstQ - a.kFirstResult, 0),
        q_rows(static_cast<size_t>(a.num_q), 0);
    for (int i = static_cast<int>(pick(1, 4)); i > 0; --i) {
      ops::QSegment s{.q = static_cast<int>(pick(0, a.num_q - 1)),
                      .head = pick(0, 2),
                      .rows = pick(0, 70),
                      .position = pick(0, 90),
                      .out = static_cast<ops::QSegment::Out>(pick(0, 3)),
                      .out_head = pick(0, 2)};
      s.row = q_rows[static_cast<size_t>(s.q)];
      q_rows[static_cast<size_t>(s.q)] += s.rows;
      s.state_row = state_rows;
      state_rows += s.rows;
      s.out_row = out_rows[static_cast<size_t>(s.out)];
      out_rows[static_cast<size_t>(s.out)] += s.rows;
      a.q.push_back(s);
    }
    for (int i = static_cast<int>(pick(1, 4)); i > 0; --i) {
      a.kv.push_back({.kv = static_cast<int>(pick(0, pairs - 1)),
                      .row = pick(0, 3),
                      .head = pick(0, 1),
                      .rows = pick(0, 150),
                      .position = pick(0, 90)});
    }
    for (ops::QSegment& s : a.q) {
      s.kv_begin = static_cast<int>(pick(0, static_cast<int64_t>(a.kv.size())));
      s.kv_end = static_cast<int>(pick(s.kv_begin, static_cast<int64_t>(a.kv.size())));
    }
    const auto add = [&](Shape shape) {
      types.push_back({DType::f32, shape, BatchAxis::sequence});
    };
    const int64_t rows = state_rows + 2, heads = a.heads + 1;
    add({B, rows, heads, D});
    add({B, rows, heads});
    add({B, rows, heads});
    for (int64_t n : out_rows) add({B, n + 1, a.heads + 3, D});
    for (int64_t n : q_rows) add({B, n + 1, a.heads + 3, D});
    for (int i = 0; i < 2 * pairs; ++i) add({B, 155, a.kv_heads + 2, D});
    for (const ValueType& type : types) data.push_back(random_floats(random, type.shape.elems()));
    for (float& l : data[1]) l = std::abs(l) + 0.1f;
    for (size_t i = a.kFirstResult; i < a.kFirstQ; ++i) data[i] = poisoned(types[i].shape.elems());
  }

  // All operands after the call by a kernel, or by the reference.
  std::vector<std::vector<float>> run(int threads, Isa isa, bool reference) const {
    auto out = data;
    Op op{.def = &ops::kSegmentAttention, .attrs = Attrs::of(a)};
    std::vector<TensorView> views;
    for (size_t i = 0; i < out.size(); ++i) {
      op.inputs.push_back(static_cast<ValueId>(i));
      views.push_back(
          make_view(reinterpret_cast<std::byte*>(out[i].data()), DType::f32, types[i].shape));
    }
    EXPECT_TRUE(op.def->infer(op.attrs, types).empty());
    BatchPart part{.begin = {}, .count = {.sequence = B}};
    const OpCall call{&op, views, {}, BatchAxis::sequence, &part};
    if (reference) {
      op.def->reference(call);
      return out;
    }
    KernelTable table(threads);
    add_cpu_kernels(table, isa);
    const Kernel& kernel = table.at(op.def->kind);
    const KernelInfo info = kernel.info(op, types, {}, threads);
    std::vector<std::byte> scratch(static_cast<size_t>(info.workspace_bytes) + 64, std::byte{0xff});
    std::byte* aligned = scratch.data();
    while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
    const BoundKernel bound = kernel.bind({.call = call, .workspace = aligned, .threads = threads});
    on_team(threads, [&](const Team& team) { bound(team); });
    return out;
  }

  std::mt19937 random;
  int64_t B = 1;
  ops::SegmentAttentionAttrs a;
  std::vector<ValueType> types;
  std::vector<std::vector<float>> data;
};

void expect_reference(const Case& c) {
  const auto want = c.run(1, Isa::baseline, true);
  for (Isa isa : usable_isas()) {
    const auto got = c.run(1, isa, false);
    for (size_t i = 0; i < got.size(); ++i) {
      Worst worst;
      for (size_t j = 0; j < got[i].size(); ++j) {
        // What neither writes is the same poison; what both do is close.
        if (std::isnan(want[i][j]) && std::isnan(got[i][j])) continue;
        if (got[i][j] == want[i][j]) continue;  // minus infinity too
        worst.see(static_cast<int64_t>(j), got[i][j], want[i][j],
                  1e-5 * (1 + std::abs(want[i][j])));
      }
      SCOPED_TRACE(::testing::Message() << name(isa) << ", operand " << i);
      expect_close(worst);
    }
    const auto threads = c.run(3, isa, false);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(same_bits(got[i], threads[i])) << "three threads change operand " << i;
    }
  }
}

TEST(SegmentAttention, EqualsItsReference) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    expect_reference(Case(seed));
  }
}

// Queries before, in and behind the chunks of keys, some of which are seen in turns.
TEST(SegmentAttention, DualChunksEqualTheReference) {
  constexpr int64_t kChunk = 160, kReach = 200;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Case c(seed);
    const int64_t D = c.types[0].shape[3];
    if (D % 2 != 0) continue;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    c.a.dual = {.chunk = kChunk,
                .reach = kReach,
                .original = 100,
                .rope = {.head_dim = D, .rotary_dim = D, .theta = 100}};
    for (int64_t i = 0; i < std::ssize(c.a.kv); ++i) {
      c.a.kv[static_cast<size_t>(i)].position = i % 3 * kChunk + i;
    }
    for (int64_t i = 0; i < std::ssize(c.a.q); ++i) {
      c.a.q[static_cast<size_t>(i)].position = 170 * i + 40;
    }
    expect_reference(c);
  }
}

// Keys in two calls with a state between give what one call gives.
TEST(SegmentAttention, StatesMerge) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    Case whole(seed);
    whole.a.load_state = false;
    whole.a.finalize = true;
    for (ops::QSegment& s : whole.a.q)
      s.kv_begin = 0, s.kv_end = static_cast<int>(whole.a.kv.size());
    Case first = whole;
    first.a.finalize = false;
    const int cut = static_cast<int>(whole.a.kv.size()) / 2;
    for (ops::QSegment& s : first.a.q) s.kv_end = cut;
    Case second = whole;
    second.a.load_state = true;
    for (ops::QSegment& s : second.a.q) s.kv_begin = cut;
    second.data = first.run(2, detected_isa(), false);
    const auto want = whole.run(2, detected_isa(), false);
    const auto got = second.run(2, detected_isa(), false);
    for (size_t i = whole.a.kFirstResult; i < whole.a.kFirstQ; ++i) {
      Worst worst;
      for (size_t j = 0; j < got[i].size(); ++j) {
        if (std::isnan(want[i][j]) && std::isnan(got[i][j])) continue;
        worst.see(static_cast<int64_t>(j), got[i][j], want[i][j],
                  1e-5 * (1 + std::abs(want[i][j])));
      }
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      expect_close(worst);
    }
  }
}

TEST(SegmentAttention, RefusesRowsOutsideItsValues) {
  Case c(3);
  c.a.q[0].rows += 1000;
  EXPECT_THROW(ops::kSegmentAttention.infer(Attrs::of(c.a), c.types), Error);
  c = Case(4);
  c.a.kv[0].head += 10;
  EXPECT_THROW(ops::kSegmentAttention.infer(Attrs::of(c.a), c.types), Error);
  c = Case(5);
  c.a.heads += 100;
  EXPECT_THROW(ops::kSegmentAttention.infer(Attrs::of(c.a), c.types), Error);
}

}  // namespace
}  // namespace braid::cpu
