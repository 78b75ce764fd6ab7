// The CPU kernels that bring rows of tokens and of the KV cache together as a sequence and back,
// against their scalar references, through the kernel table.
#include <algorithm>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/sequence.h"

namespace braid::cpu {
namespace {

using namespace testing;

// An op on operands of its own; what it makes begins as poison.
struct Case {
  Case(const OpDef& def, Attrs attrs, std::vector<ValueType> in_types)
      : types(std::move(in_types)) {
    op.def = &def;
    op.attrs = std::move(attrs);
    out_types = def.infer(op.attrs, types);
    for (const auto* list : {&types, &out_types}) {
      for (const ValueType& type : *list) {
        data.emplace_back(static_cast<size_t>(bytes_of(type)), std::byte{0xff});
      }
    }
  }

  std::vector<std::vector<std::byte>> run(int threads, Isa isa, bool reference) {
    auto memory = data;
    std::vector<TensorView> in, out;
    for (size_t i = 0; i < memory.size(); ++i) {
      const bool made = i >= types.size();
      const ValueType& type = made ? out_types[i - types.size()] : types[i];
      (made ? out : in).push_back(make_view(memory[i].data(), type.dtype, type.shape));
    }
    BatchPart part{.begin = {},
                   .count = {.token = shard, .sequence = 1, .row = rows, .shard = shard}};
    const OpCall call{&op, in, out, types[0].axis, &part};
    if (reference) {
      op.def->reference(call);
      return memory;
    }
    KernelTable table(threads);
    add_cpu_kernels(table, isa);
    const Kernel& kernel = table.at(op.def->kind);
    EXPECT_EQ(kernel.info(op, types, out_types, threads).workspace_bytes, 0);
    const BoundKernel bound = kernel.bind({.call = call, .threads = threads});
    on_team(threads, [&](const Team& team) { bound(team); });
    return memory;
  }

  void expect_as_reference() {
    const auto want = run(1, Isa::baseline, true);
    for (Isa isa : usable_isas()) {
      for (int threads : {1, 3}) {
        EXPECT_EQ(run(threads, isa, false), want) << name(isa) << ", " << threads << " threads";
      }
    }
  }

  void fill(size_t operand, std::mt19937& random) {
    const auto values = random_floats(random, types[operand].shape.elems());
    quantize_row(types[operand].dtype, values.data(), data[operand].data(), std::ssize(values));
  }
  // Slots of `cache` rows, each at most once; a third of them are none.
  void fill_slots(size_t operand, int64_t cache, std::mt19937& random) {
    std::vector<int32_t> slots(static_cast<size_t>(cache));
    for (int64_t i = 0; i < cache; ++i) slots[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    std::ranges::shuffle(slots, random);
    slots.resize(static_cast<size_t>(types[operand].shape[0]));
    for (size_t i = 0; i < slots.size(); i += 3) slots[i] = -1;
    std::memcpy(data[operand].data(), slots.data(), slots.size() * sizeof(int32_t));
  }

  Op op;
  std::vector<ValueType> types, out_types;
  std::vector<std::vector<std::byte>> data;  // [inputs, then outputs]
  int64_t shard = 0, rows = 0;               // live ones
};

TEST(SequenceRows, CacheRowsEqualTheReferenceInEveryDtype) {
  std::mt19937 random(1);
  for (DType cache : {DType::f32, DType::f16, DType::bf16}) {
    for (DType rows : {DType::f32, cache}) {
      for (int64_t L : {1, 7, 40}) {
        SCOPED_TRACE(fmt::format("{} rows {} of a cache in {}", L, name(rows), name(cache)));
        const ValueType pages{cache, {7, 8, 3, 5}};
        const ValueType slots{DType::i32, {L}, BatchAxis::none};
        const ValueType sequence{rows, {1, L, 3, 5}, BatchAxis::sequence};
        Case read(ops::kKvRead, Attrs::of(ops::KvReadAttrs{rows}), {slots, pages, pages});
        read.fill_slots(0, 56, random);
        for (size_t i : {1u, 2u}) read.fill(i, random);
        read.expect_as_reference();
        Case write(ops::kKvWrite, {}, {sequence, sequence, slots, pages, pages});
        for (size_t i : {0u, 1u, 3u, 4u}) write.fill(i, random);
        write.fill_slots(2, 56, random);
        write.expect_as_reference();
      }
    }
  }
}

TEST(SequenceRows, TokensBecomeASequenceAndBack) {
  std::mt19937 random(2);
  for (int64_t live : {0, 1, 5, 9}) {
    SCOPED_TRACE(fmt::format("{} of 9 rows", live));
    const ValueType tokens{DType::f32, {9, 12}, BatchAxis::shard};
    const ValueType sequence{DType::f32, {1, 9, 3, 4}, BatchAxis::sequence};
    Case there(ops::kToSequence, Attrs::of(ops::ToSequenceAttrs{4}), {tokens});
    EXPECT_EQ(there.out_types[0], sequence);
    Case back(ops::kToTokens, {}, {sequence});
    EXPECT_EQ(back.out_types[0], tokens);
    for (Case* c : {&there, &back}) {
      c->shard = live;
      c->fill(0, random);
      c->expect_as_reference();
      // Live rows as they are, and no byte past them.
      const auto memory = c->run(1, detected_isa(), false);
      const auto bytes = static_cast<size_t>(live * 12 * 4);
      EXPECT_EQ(std::memcmp(memory[1].data(), memory[0].data(), bytes), 0);
      for (size_t i = bytes; i < memory[1].size(); ++i) ASSERT_EQ(memory[1][i], std::byte{0xff});
    }
  }
}

TEST(SequenceRows, RowsOfOthersAreZeros) {
  std::mt19937 random(3);
  Case pick(ops::kPickRows, {},
            {{DType::f32, {9, 12}, BatchAxis::shard}, {DType::i32, {30}, BatchAxis::row}});
  pick.fill(0, random);
  std::vector<int32_t> rows(30);
  for (int32_t& row : rows) row = std::uniform_int_distribution<int32_t>(-3, 8)(random);
  std::memcpy(pick.data[1].data(), rows.data(), rows.size() * sizeof(int32_t));
  pick.shard = 9;
  pick.rows = 25;
  pick.expect_as_reference();
  const auto memory = pick.run(1, detected_isa(), false);
  for (size_t i = 0; i < 25; ++i) {
    const std::vector<std::byte> none(48);
    const std::byte* want =
        rows[i] < 0 ? none.data() : &memory[0][static_cast<size_t>(rows[i]) * 48];
    EXPECT_EQ(std::memcmp(&memory[2][i * 48], want, 48), 0) << "row " << rows[i];
  }
  EXPECT_EQ(memory[2][25 * 48], std::byte{0xff}) << "past the live rows";
}

TEST(SequenceRows, RefuseWhatDoesNotFit) {
  const ValueType pages{DType::f16, {7, 8, 3, 5}}, slots{DType::i32, {4}};
  const ValueType rows{DType::f16, {1, 4, 3, 5}, BatchAxis::sequence};
  const auto refuses = [](const OpDef& def, const Attrs& attrs, const std::vector<ValueType>& in) {
    EXPECT_THROW(def.infer(attrs, in), Error);
  };
  const Attrs read = Attrs::of(ops::KvReadAttrs{});
  refuses(ops::kKvRead, read, {{DType::f32, {4}}, pages, pages});
  refuses(ops::kKvRead, read, {slots, pages, {DType::f16, {7, 8, 15}}});
  refuses(ops::kKvWrite, {}, {rows, {DType::f16, {1, 4, 2, 5}}, slots, pages, pages});
  refuses(ops::kKvWrite, {}, {rows, rows, {DType::i32, {5}}, pages, pages});
  refuses(ops::kToSequence, Attrs::of(ops::ToSequenceAttrs{5}), {{DType::f32, {9, 12}}});
  refuses(ops::kPickRows, {}, {{DType::f32, {9, 12}}, {DType::f32, {3}}});
  refuses(ops::kToTokens, {}, {{DType::f32, {2, 9, 3, 4}}});
}

}  // namespace
}  // namespace braid::cpu
