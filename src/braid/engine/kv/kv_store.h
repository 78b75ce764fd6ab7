#pragma once

#include <string_view>

#include "braid/engine/kv/kv_pages.h"
#include "braid/engine/kv/prefix_tree.h"

namespace braid {

// The KV pages of a sequence, in order: full pages of the tree, shared with others, then private
// pages.
struct KvHolding {
  std::vector<int32_t> pages;           // shared and private
  std::vector<PrefixTree::Node*> path;  // nodes for the first path.size() pages
  PrefixTree::Node* root = nullptr;     // null: nothing is held
  bool shared = true;                   // full pages are; false: all stay private

  bool empty() const { return root == nullptr; }
};

// Owner of each page of the KV cache: a sequence, the prefix cache, or nobody. Pages of a prefix
// stay cached after their last sequence ends, until room is needed. Not for several threads.
class KvStore {
 public:
  // Without `share` nothing is cached and every sequence computes all its keys.
  KvStore(int64_t pages, int64_t page_size, bool share);

  struct Counts {
    int64_t free = 0;    // hold nothing
    int64_t cached = 0;  // hold a prefix, in no sequence's hands
    int64_t held = 0;    // pages held by sequences
  };
  Counts counts() const;
  int64_t total() const { return pages_.total(); }
  int64_t page_size() const { return pages_.page_size(); }
  int64_t available() const { return pages_.available() + tree_.evictable(); }
  int64_t evictions() const { return evictions_; }  // cached pages given up so far

  // Holds nothing but a place in the tree, for a sequence of this salt. Without `shared` it takes
  // no page of others and leaves none.
  KvHolding open(std::string_view salt, bool shared = true);
  // Tokens whose pages find() would take for a sequence of this salt.
  int64_t cached(std::string_view salt, std::span<const int32_t> ids) const;

  // Takes the cache's pages of `ids` behind the held pages, which are all full and shared. The
  // last token is never included: a step has to compute its logits. Returns the number of held
  // tokens.
  int64_t find(KvHolding& holding, std::span<const int32_t> ids);

  // Extends `holding` until it has room for `tokens` tokens; gives up cached pages as needed.
  // False, and nothing changed, where too few pages are left.
  bool grow(KvHolding& holding, int64_t tokens);

  // The keys of ids[0, computed) are in the cache, after a step without an error: full pages among
  // them can be shared from now on.
  void keep(KvHolding& holding, std::span<const int32_t> ids, int64_t computed);

  // Gives all pages back; shared ones stay cached.
  void close(KvHolding& holding);

  // Fails with a broken invariant unless every page is exactly in one place, given all holdings.
  void check(std::span<const KvHolding* const> holdings) const;

 private:
  KvPages pages_;
  PrefixTree tree_;
  const bool share_;
  int64_t evictions_ = 0;
};

}  // namespace braid
