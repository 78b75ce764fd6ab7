#include "braid/engine/kv/prefix_tree.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid {
namespace {

uint64_t hash_of(std::span<const int32_t> ids) {
  uint64_t h = 0xcbf29ce484222325u;  // FNV-1a over words
  for (int32_t id : ids) h = (h ^ static_cast<uint32_t>(id)) * 0x100000001b3u;
  return h;
}

}  // namespace

PrefixTree::Node* PrefixTree::find(const Node& parent, std::span<const int32_t> ids) const {
  const auto [begin, end] = parent.children.equal_range(hash_of(ids));
  for (auto it = begin; it != end; ++it) {
    if (std::ranges::equal(it->second->ids, ids)) return it->second.get();
  }
  return nullptr;
}

void PrefixTree::offer(Node& node) {
  if (node.parent != nullptr && node.holders == 0 && node.children.empty()) {
    leaves_.emplace(node.last_use, &node);
  }
}

void PrefixTree::hold(Node& node) {
  if (node.holders++ > 0 || node.parent == nullptr) return;
  leaves_.erase({node.last_use, &node});
  --evictable_;
}

void PrefixTree::release(Node& node) {
  BRAID_CHECK(node.holders > 0, "a node that nobody holds is let go");
  if (--node.holders > 0 || node.parent == nullptr) return;
  node.last_use = ++calls_;
  ++evictable_;
  offer(node);
}

void PrefixTree::forget_root(Node& root) {
  if (root.holders > 0 || !root.children.empty()) return;
  roots_.erase(roots_.find(root.salt));
}

PrefixTree::Node* PrefixTree::root(std::string_view salt) {
  auto it = roots_.find(salt);
  if (it == roots_.end()) it = roots_.try_emplace(std::string(salt)).first;
  it->second.salt = it->first;
  hold(it->second);
  return &it->second;
}

void PrefixTree::descend(Node* root, std::span<const int32_t> ids, int64_t max_pages,
                         std::vector<Node*>& path) {
  const size_t page = page_size_;
  Node* node = path.empty() ? root : path.back();
  while (std::ssize(path) < max_pages && (path.size() + 1) * page <= ids.size()) {
    node = find(*node, ids.subspan(path.size() * page, page));
    if (node == nullptr) return;
    hold(*node);
    path.push_back(node);
  }
}

int64_t PrefixTree::pages_of(std::string_view salt, std::span<const int32_t> ids,
                             int64_t max_pages) const {
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return 0;
  const Node* node = &root->second;
  const size_t page = page_size_;
  size_t pages = 0;
  for (; static_cast<int64_t>(pages) < max_pages; ++pages) {
    node = find(*node, ids.subspan(pages * page, page));
    if (node == nullptr) break;
  }
  return static_cast<int64_t>(pages);
}

PrefixTree::Node* PrefixTree::extend(Node* parent, std::span<const int32_t> ids, int32_t page) {
  BRAID_CHECK(std::ssize(ids) == page_size_ && parent->holders > 0, "{} ids for a page of {}",
              ids.size(), page_size_);
  if (Node* const twin = find(*parent, ids)) {
    hold(*twin);
    return twin;
  }
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->ids.assign(ids.begin(), ids.end());
  node->page = page;
  node->holders = 1;
  ++pages_;
  return parent->children.emplace(hash_of(ids), std::move(node))->second.get();
}

void PrefixTree::release(Node* root, std::span<Node* const> path) {
  for (size_t i = path.size(); i-- > 0;) release(*path[i]);
  release(*root);
  forget_root(*root);
}

std::optional<int32_t> PrefixTree::evict() {
  if (leaves_.empty()) return {};
  Node* const node = leaves_.begin()->second;
  leaves_.erase(leaves_.begin());
  const int32_t page = node->page;
  Node* const parent = node->parent;
  const auto [begin, end] = parent->children.equal_range(hash_of(node->ids));
  parent->children.erase(
      std::find_if(begin, end, [&](const auto& child) { return child.second.get() == node; }));
  --pages_;
  --evictable_;
  parent->parent == nullptr ? forget_root(*parent) : offer(*parent);
  return page;
}

}  // namespace braid
