#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/fabric/link.h"

// Bytes moved, counted at the request: by tag, verb and link class.
namespace braid::fabric {

enum class Verb : uint8_t { put, get, signal };
inline constexpr int kNumVerbs = 3;
std::string_view to_string(Verb verb);

// Names the purpose of a transfer or wait. Made once by Endpoint::tag, cheap to pass on.
struct Tag {
  uint16_t id = 0;  // 0 is "untagged"
};

// A world's tags. Thread-safe.
class TagTable {
 public:
  static constexpr int kMaxTags = 256;

  TagTable();
  // The tag with that name, made on first use; throws kResource past kMaxTags names.
  Tag intern(std::string_view name);
  std::string name(Tag tag) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

struct TrafficEntry {
  std::string tag;
  Verb verb;
  LinkClass link;
  int64_t messages;
  int64_t bytes;  // payload; 8 for each signal
};

// A rank's requests since the last reset: a get counts at the reading rank. Adding costs two
// uncontended atomic additions; any thread may add or read.
class TrafficCounters {
 public:
  explicit TrafficCounters(const TagTable& tags);

  void add(Tag tag, Verb verb, LinkClass link, int64_t bytes) {
    Cell& cell = cells_[index(tag.id, static_cast<int>(verb), static_cast<int>(link))];
    cell.messages.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  // Every cell that is not zero, by tag, verb, link.
  std::vector<TrafficEntry> entries() const;
  // Bytes moved by a verb over a link class, for all tags or for names that start with `prefix`.
  int64_t bytes(Verb verb, LinkClass link, std::string_view prefix = "") const;
  void reset();

 private:
  struct Cell {
    std::atomic<int64_t> messages{0};
    std::atomic<int64_t> bytes{0};
  };
  static int index(int tag, int verb, int link) {
    return (tag * kNumVerbs + verb) * kNumLinkClasses + link;
  }

  const TagTable& tags_;
  std::unique_ptr<Cell[]> cells_;  // [kMaxTags, kNumVerbs, kNumLinkClasses]
};

}  // namespace braid::fabric
