#include "braid/engine/context_key.h"

#include <algorithm>
#include <bit>

#include "braid/engine/batch_cut.h"

namespace braid {
namespace {

int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

int64_t power_of_four(int64_t n) {
  const int64_t two = power_of_two(n);
  return std::countr_zero(static_cast<uint64_t>(two)) % 2 == 0 ? two : 2 * two;
}

// Large products compute all rows of a capacity on GPUs, small ones wait for their weights.
int64_t token_capacity(int64_t n) {
  constexpr int64_t kCoarse = 256;
  const int64_t two = power_of_two(n);
  return two <= kCoarse ? two : round_up(n, two / 16);
}

int64_t sequence_capacity(int64_t n) {
  return n <= 1 ? 1 : 8 * power_of_four(ceil_div(n, 8));
}

}  // namespace

int64_t row_capacity(int64_t rows) {
  return power_of_four(rows);
}

bool ContextKey::operator==(const ContextKey& other) const {
  return strategy == other.strategy && every_row == other.every_row && kind == other.kind &&
         q == other.q && kv == other.kv && sequences == other.sequences && own == other.own &&
         mesh == other.mesh && exact == other.exact &&
         std::equal(micro_batches.begin(), micro_batches.end(), other.micro_batches.begin(),
                    other.micro_batches.end());
}

ContextKey key_for(const BatchCut& cut, int strategy, int ranks) {
  ContextKey key{.strategy = strategy, .micro_batches = {}, .q = {}, .kv = {}};
  key.every_row = std::ranges::all_of(
      cut.works(), [](const Work& work) { return work.extents.row == work.extents.token; });
  for (size_t i = 0; i < cut.size(); ++i) {
    const Extents& n = cut.work(i).extents;
    // A multiple of the ranks: capacities of token shards then add up over micro-batches. A single
    // token keeps capacity 1: its launches may join into a single launch.
    const bool alone = cut.size() == 1 && n.token == 1;
    const int64_t tokens = round_up(token_capacity(n.token), alone ? 1 : ranks);
    key.micro_batches.push_back(
        {.capacity = {.token = tokens,
                      .sequence = std::min(sequence_capacity(n.sequence), tokens),
                      .row = key.every_row ? tokens : std::min(power_of_four(n.row), tokens),
                      .shard = ceil_div(tokens, static_cast<int64_t>(ranks))},
         .continues = cut.continues(i)});
  }
  return key;
}

ContextKey key_for_tokens(const SequenceLayout& q, const SequenceLayout& kv, int64_t rows) {
  ContextKey key{.kind = ContextKey::Kind::tokens, .q = q, .kv = kv};
  key.micro_batches.push_back({.capacity = {.token = q.length(),
                                            .sequence = 1,
                                            .row = std::min(power_of_four(rows), q.length()),
                                            .shard = q.max_rows()}});
  return key;
}

ContextKey key_for_thinned(int64_t tokens, int64_t cached, int64_t rows, int ranks) {
  ContextKey key =
      key_for_tokens(even_layout(tokens, 1, cached), even_layout(cached + tokens, 1), rows);
  key.kind = ContextKey::Kind::ranks;
  Extents& capacity = key.micro_batches[0].capacity;
  capacity.token = round_up(tokens, int64_t{ranks});
  capacity.shard = capacity.token / ranks;
  return key;
}

ContextKey key_for_apart(const SequenceLayout& tokens, int64_t sequences, int64_t rows) {
  ContextKey key = key_for_tokens(tokens, {}, rows);
  key.kind = ContextKey::Kind::apart;
  key.sequences = sequences;
  return key;
}

ContextKey key_for_local(int ranks, int64_t guests, int64_t own, int64_t caches, int64_t rows) {
  const auto capacity = [](int64_t n) { return n == 0 ? 0 : token_capacity(n); };
  const int64_t each = capacity(guests) + capacity(own);
  ContextKey key = key_for_apart(even_layout(ranks * each, ranks), caches, rows);
  key.own = capacity(own);
  return key;
}

std::string to_string(const ContextKey& key) {
  if (key.kind == ContextKey::Kind::gather) {
    return fmt::format("{} keys to rank 0", key.kv.length());
  }
  std::string tokens, sequences, rows;
  for (const MicroBatch& mb : key.micro_batches) {
    const char* plus = tokens.empty() ? "" : "+";
    tokens += fmt::format("{}{}", plus, mb.capacity.token);
    sequences += fmt::format("{}{}", plus, mb.capacity.sequence);
    rows += fmt::format("{}{}", plus, mb.capacity.row);
  }
  const char* where = key.kind == ContextKey::Kind::first ? ", on rank 0" : "";
  if (key.kind == ContextKey::Kind::tokens) {
    return fmt::format("{} tokens over {} ranks, {} keys, {} rows", tokens, key.q.ranks.size(),
                       key.kv.length(), rows);
  }
  if (key.own > 0) {
    return fmt::format("{} guests and {} own tokens on each of {} ranks, {} rows",
                       key.q.max_rows() - key.own, key.own, key.q.ranks.size(), rows);
  }
  if (key.kind == ContextKey::Kind::apart) {
    return fmt::format("{} tokens of {} sequences to the keys on {} ranks, {} rows", tokens,
                       key.sequences, key.q.ranks.size(), rows);
  }
  return fmt::format("{} tokens, {} sequences, {} rows{}", tokens, sequences, rows, where);
}

}  // namespace braid
