#include "braid/fabric/traffic.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid::fabric {

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::put:
      return "put";
    case Verb::get:
      return "get";
    case Verb::signal:
      return "signal";
  }
  return "unknown";
}

TagTable::TagTable() {
  names_.reserve(kMaxTags);
  names_.push_back("untagged");
}

Tag TagTable::intern(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto it = std::find(names_.begin(), names_.end(), name);
  if (it == names_.end()) {
    if (names_.size() == kMaxTags) {
      fail(ErrorCode::kResource, "tag '{}': a fabric holds at most {} tags", name, kMaxTags);
    }
    it = names_.insert(names_.end(), std::string(name));
  }
  return {static_cast<uint16_t>(it - names_.begin())};
}

std::string TagTable::name(Tag tag) const {
  std::lock_guard lock(mutex_);
  return tag.id < names_.size() ? names_[tag.id] : "unknown";
}

TrafficCounters::TrafficCounters(const TagTable& tags)
    : tags_(tags), cells_(new Cell[TagTable::kMaxTags * kNumVerbs * kNumLinkClasses]) {}

std::vector<TrafficEntry> TrafficCounters::entries() const {
  std::vector<TrafficEntry> result;
  for (int tag = 0; tag < TagTable::kMaxTags; ++tag) {
    for (int verb = 0; verb < kNumVerbs; ++verb) {
      for (int link = 0; link < kNumLinkClasses; ++link) {
        const Cell& cell = cells_[index(tag, verb, link)];
        const int64_t messages = cell.messages.load(std::memory_order_relaxed);
        if (messages == 0) continue;
        result.push_back({tags_.name({static_cast<uint16_t>(tag)}), static_cast<Verb>(verb),
                          static_cast<LinkClass>(link), messages,
                          cell.bytes.load(std::memory_order_relaxed)});
      }
    }
  }
  return result;
}

int64_t TrafficCounters::bytes(Verb verb, LinkClass link, std::string_view prefix) const {
  int64_t total = 0;
  for (const TrafficEntry& entry : entries()) {
    if (entry.verb == verb && entry.link == link && entry.tag.starts_with(prefix)) {
      total += entry.bytes;
    }
  }
  return total;
}

void TrafficCounters::reset() {
  for (int i = 0; i < TagTable::kMaxTags * kNumVerbs * kNumLinkClasses; ++i) {
    cells_[i].messages.store(0, std::memory_order_relaxed);
    cells_[i].bytes.store(0, std::memory_order_relaxed);
  }
}

}  // namespace braid::fabric
