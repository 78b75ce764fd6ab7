// A batch cut anywhere: what the host writes, and what the step computes from it.
#include "braid/engine/batch_cut.h"

#include <random>

#include "braid/engine/context_key.h"
#include "unit/runtime/serial_backend.h"
#include "unit/schedule/planned_decoder.h"

namespace braid {
namespace {

using namespace testing_schedule;
using testing_runtime::Memory;
using testing_runtime::SerialBackend;

constexpr DecoderShape kShape = {.layers = 2, .pages = 32, .page_size = 4, .pages_per_sequence = 8};

// Tokens of a batch, one by one.
struct Token {
  size_t sequence;
  int64_t position;
  bool scored;
};
struct RandomBatch {
  Batch batch{kShape.page_size};
  std::vector<Token> tokens;
  std::vector<std::vector<int32_t>> pages;

  // Prompts, chunks of prompts and decodes; `cached` holds what came before, and is moved on.
  RandomBatch(std::mt19937_64& rng, std::vector<int64_t>& cached) {
    batch.clear();
    for (size_t s = 0; s < cached.size(); ++s) {
      pages.emplace_back();
      for (int32_t p = 0; p < 8; ++p) pages.back().push_back((p * 4) + static_cast<int32_t>(s));
      const int64_t room = 32 - cached[s];
      if (room == 0 || (rng() % 3 == 0 && s + 1 < cached.size())) continue;
      const int64_t n =
          std::min<int64_t>(rng() % 2 ? 1 : 1 + static_cast<int64_t>(rng() % 11), room);
      const int64_t scored =
          static_cast<int64_t>(rng() % static_cast<uint64_t>(std::min<int64_t>(n, 3) + 1));
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < n; ++i) {
        ids.push_back(static_cast<int32_t>((s * 17 + static_cast<size_t>(cached[s] + i) * 5) % 50));
        tokens.push_back({s, cached[s] + i, i >= n - scored});
      }
      batch.add(ids, cached[s], pages.back(), scored);
      order.push_back(s);
      cached[s] += n;
    }
  }
  std::vector<size_t> order;  // sequences that take part
};

Ranges random_ranges(int64_t tokens, std::mt19937_64& rng, size_t most) {
  std::vector<int64_t> cuts = {0, tokens};
  for (size_t n = rng() % most; n > 0; --n) {
    cuts.push_back(static_cast<int64_t>(rng() % static_cast<uint64_t>(tokens)));
  }
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  Ranges ranges;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) ranges.push_back({cuts[i], cuts[i + 1]});
  return ranges;
}

std::unique_ptr<Executor> bind(const BatchCut& cut, const OpScheduler& strategy, Backend& backend,
                               Memory& memory) {
  const ContextKey key = key_for(cut, 0, 1);
  Extents capacity;
  for (const MicroBatch& mb : key.micro_batches) capacity += mb.capacity;
  Program program = decoder(capacity, kShape);
  Schedule schedule = schedule_of(program, strategy, backend.catalog(),
                                  {key.micro_batches.begin(), key.micro_batches.end()});
  return std::make_unique<Executor>(std::move(program), std::move(schedule), backend,
                                    std::ref(memory));
}

TEST(BatchCut, WritesWhatTokensSay) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  BatchCut cut;  // one for all, as the runner keeps it
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> cached(4);
    for (int64_t& n : cached) n = static_cast<int64_t>(rng() % 20);
    const RandomBatch random(rng, cached);
    const auto T = static_cast<int64_t>(random.tokens.size());
    const Ranges ranges = random_ranges(T, rng, kMaxMicroBatches);
    cut.assign(random.batch, ranges, "test");
    SerialBackend backend;
    Memory memory;
    const auto executor = bind(cut, three_streams(), backend, memory);
    cut.write(*executor);
    const auto input = [&](const char* name) { return executor->input(name).as<int32_t>(); };

    ASSERT_EQ(cut.size(), ranges.size());
    Work sum;
    int64_t pieces = 0, rows = 0;
    for (size_t m = 0; m < ranges.size(); ++m) {
      const Range range = ranges[m];
      Work work;
      work.extents.token = range.size();
      const Token& first = random.tokens[static_cast<size_t>(range.begin)];
      const bool continues =
          range.begin > 0 &&
          random.tokens[static_cast<size_t>(range.begin) - 1].sequence == first.sequence;
      EXPECT_EQ(cut.continues(m), continues);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const Token& token = random.tokens[static_cast<size_t>(t)];
        const auto& pages = random.pages[token.sequence];
        EXPECT_EQ(input("positions")[t], token.position);
        EXPECT_EQ(input("token_ids")[t], random.batch.tokens()[static_cast<size_t>(t)]);
        EXPECT_EQ(input("slots")[t],
                  pages[static_cast<size_t>(token.position / 4)] * 4 + token.position % 4);
        work.attended += token.position + 1;
        if (token.scored) {
          EXPECT_EQ(input("rows")[rows++], t);
          ++work.extents.row;
        }
        // The last token of a piece ends it.
        const bool ends = t + 1 == range.end ||
                          random.tokens[static_cast<size_t>(t) + 1].sequence != token.sequence;
        if (t == range.begin ||
            random.tokens[static_cast<size_t>(t) - 1].sequence != token.sequence) {
          EXPECT_EQ(input("q_start")[pieces], t);
        }
        if (!ends) continue;
        EXPECT_EQ(input("q_start")[pieces + 1], t + 1);
        EXPECT_EQ(input("kv_len")[pieces], token.position + 1);
        for (size_t p = 0; p < pages.size(); ++p) {
          EXPECT_EQ(executor->input("page_table").row_as<int32_t>(pieces)[p], pages[p]);
        }
        work.kv_tokens += token.position + 1;
        ++work.extents.sequence;
        ++pieces;
      }
      EXPECT_EQ(cut.work(m).extents.token, work.extents.token);
      EXPECT_EQ(cut.work(m).extents.sequence, work.extents.sequence);
      EXPECT_EQ(cut.work(m).extents.row, work.extents.row);
      EXPECT_EQ(cut.work(m).attended, work.attended);
      EXPECT_EQ(cut.work(m).kv_tokens, work.kv_tokens);
      sum.extents += cut.work(m).extents;
      sum.attended += cut.work(m).attended;
      sum.kv_tokens += cut.work(m).kv_tokens;
    }
    EXPECT_EQ(sum.extents.token, random.batch.extents().token);
    EXPECT_EQ(sum.extents.row, random.batch.extents().row);
    EXPECT_EQ(sum.attended, random.batch.work().attended);
    EXPECT_GE(sum.kv_tokens, random.batch.work().kv_tokens) << "a cut reads keys again";
    if (ranges.size() == 1) {
      EXPECT_EQ(sum.kv_tokens, random.batch.work().kv_tokens);
    }
  }
}

// Steps over one cache, cut at random, give bit for bit the logits of steps that are not cut: each
// row is computed by itself.
TEST(BatchCut, CutStepsComputeTheSame) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const TestStrategy strategies[] = {three_streams(), merging()};
  for (int round = 0; round < 6; ++round) {
    std::mt19937_64 rng(seed + static_cast<uint64_t>(round));
    Memory whole, cut_memory;
    std::vector<int64_t> cached(4);
    for (int step = 0; step < 5; ++step) {
      const RandomBatch random(rng, cached);
      const auto T = static_cast<int64_t>(random.tokens.size());
      if (T == 0) break;
      const auto run = [&](const Ranges& ranges, const OpScheduler& strategy, Memory& memory) {
        BatchCut cut;
        cut.assign(random.batch, ranges, "test");
        SerialBackend backend;
        const auto executor = bind(cut, strategy, backend, memory);
        cut.write(*executor);
        std::vector<Extents> counts;
        for (const Work& work : cut.works()) counts.push_back(work.extents);
        executor->run(counts);
        const TensorView& out = executor->output(0);
        const int64_t n = random.batch.extents().row * out.cols();
        return std::vector<float>(out.as<float>(), out.as<float>() + n);
      };
      const auto expected = run({{0, T}}, three_streams(), whole);
      const auto got = run(random_ranges(T, rng, 4), strategies[round % 2], cut_memory);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << "step " << step;
    }
  }
}

TEST(BatchCut, RefusesRangesThatAreNoDivision) {
  Batch batch(4);
  batch.clear();
  const std::vector<int32_t> tokens(10), pages(8);
  batch.add(tokens, 0, pages, 1);
  const std::vector<std::pair<Ranges, std::string>> bad = {
      {{}, "nothing"},
      {{{0, 9}}, "0..9"},
      {{{1, 10}}, "1..10"},
      {{{0, 11}}, "0..11"},
      {{{0, 4}, {6, 10}}, "0..4 6..10"},    // a gap
      {{{0, 6}, {4, 10}}, "0..6 4..10"},    // an overlap
      {{{0, 10}, {5, 10}}, "0..10 5..10"},  // one again
      {{{0, 10}, {0, 10}}, "0..10 0..10"},
      {{{0, 10}, {10, 10}}, "0..10 10..10"},  // an empty one
      {{{0, 0}, {0, 10}}, "0..0 0..10"},
      {{{0, 5}, {5, 5}, {5, 10}}, "5..5"},
      {{{5, 10}, {0, 5}}, "5..10 0..5"},  // not in order
      {{{0, 12}, {12, 10}}, "12..10"},    // backwards
      {{{-2, 10}}, "-2..10"},
  };
  BatchCut cut;
  for (const auto& [ranges, text] : bad) {
    expect_refused([&] { cut.assign(batch, ranges, "odd"); },
                   {"schedule 'odd'", "splits 10 tokens", text});
  }
  EXPECT_NO_THROW(cut.assign(batch, {{0, 5}, {5, 10}}, "even"));
  EXPECT_EQ(cut.size(), 2u);
}

}  // namespace
}  // namespace braid
