#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid {

// Full pages of the KV cache by their tokens. The path from a root to a node spells the beginning
// of a sequence, a page per node; sequences with equal beginnings share nodes. Token ids are
// compared; no hash decides. Not for several threads.
class PrefixTree {
 public:
  struct Node {
    Node* parent = nullptr;    // null: a root, without a page
    std::vector<int32_t> ids;  // [page_size]
    int32_t page = -1;         // page number in the KV cache
    int64_t holders = 0;       // sequences that hold this node and its ancestors
    uint64_t last_use = 0;     // when the last holder let go, in calls
    std::string_view salt;     // a root's salt
    std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;  // by hash of the ids
  };

  explicit PrefixTree(int64_t page_size) : page_size_(page_size) {}

  // Holds and returns the root for all sequences with this salt: sequences with other salts share
  // nothing.
  Node* root(std::string_view salt);

  // Goes down from `path`'s last node, or from `root`, as long as a node spells the next page of
  // `ids`, which are the whole sequence. Holds the nodes and appends them to `path`, up to
  // `max_pages` in all.
  void descend(Node* root, std::span<const int32_t> ids, int64_t max_pages,
               std::vector<Node*>& path);

  // How many pages descend() would find from the salt's root, holding nothing.
  int64_t pages_of(std::string_view salt, std::span<const int32_t> ids, int64_t max_pages) const;

  // Adds a child for a full page to `parent`, which is held; the child is held. An existing child
  // with equal ids is returned instead: its page differs from `page`, which stays the caller's.
  Node* extend(Node* parent, std::span<const int32_t> ids, int32_t page);

  // Gives up the hold on a root and on a path below the root.
  void release(Node* root, std::span<Node* const> path);

  // Forgets the least recently used free leaf and returns its page.
  std::optional<int32_t> evict();

  int64_t pages() const { return pages_; }          // nodes with a page
  int64_t evictable() const { return evictable_; }  // free pages among these

 private:
  Node* find(const Node& parent, std::span<const int32_t> ids) const;
  void hold(Node& node);
  void release(Node& node);
  void forget_root(Node& root);
  // Leaves without holders wait here for eviction.
  void offer(Node& node);

  const int64_t page_size_;
  std::map<std::string, Node, std::less<>> roots_;  // by salt
  std::set<std::pair<uint64_t, Node*>> leaves_;     // by last use
  uint64_t calls_ = 0;
  int64_t pages_ = 0;
  int64_t evictable_ = 0;
};

}  // namespace braid
