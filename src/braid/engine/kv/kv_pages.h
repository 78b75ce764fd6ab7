#pragma once

#include <cstdint>
#include <vector>

namespace braid {

// Hands out pages of the KV cache, lowest first, so memory is touched only when needed. Every rank
// uses equal page numbers for its share of the heads.
class KvPages {
 public:
  KvPages(int64_t pages, int64_t page_size);

  int64_t page_size() const { return page_size_; }
  int64_t total() const { return total_; }
  int64_t available() const { return static_cast<int64_t>(free_.size()); }

  // Extends `pages` until it holds `tokens` tokens. Fails with kResource, changing nothing, when
  // too few pages are left.
  void reserve(std::vector<int32_t>& pages, int64_t tokens);

  // Takes all `pages` back and clears the vector.
  void release(std::vector<int32_t>& pages);

 private:
  int64_t page_size_;
  int64_t total_;
  std::vector<int32_t> free_;  // a heap, the lowest page on top
};

// Pages of a sequence, given back at the lease's end. `pages` outlive the lease.
class KvLease {
 public:
  explicit KvLease(KvPages& pages) : pages_(pages) {}
  ~KvLease() { pages_.release(held_); }
  KvLease(const KvLease&) = delete;
  KvLease& operator=(const KvLease&) = delete;

  // Pages for at least `tokens` tokens, in order. Fails as reserve() does.
  const std::vector<int32_t>& hold(int64_t tokens) {
    pages_.reserve(held_, tokens);
    return held_;
  }

 private:
  KvPages& pages_;
  std::vector<int32_t> held_;
};

}  // namespace braid
