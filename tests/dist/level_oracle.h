#pragma once

#include "dist/level_sets.h"
#include "dist/sequence_world.h"

// The oracle of level attention over the inputs of a world of threads.
namespace braid::testing_sp {

inline constexpr uint64_t kSeed = 11;

inline double score(const SequenceAttention& a, int64_t query, int64_t key, int64_t head) {
  double s = 0;
  for (int64_t d = 0; d < a.head_dim; ++d) {
    s += double{element(kSeed, kQ, 0, query, head, d)} *
         element(kSeed, kK, 0, key, head / a.group(), d);
  }
  return s * a.scale;
}

class Oracle : public LevelSets {
 public:
  Oracle(const SequenceAttention& a, const LevelCase& c, int64_t kv_head, Fault fault = Fault::none)
      : LevelSets(
            a, c,
            [&a](int64_t query, int64_t key, int64_t head) { return score(a, query, key, head); },
            kv_head, fault) {}
};

}  // namespace braid::testing_sp
