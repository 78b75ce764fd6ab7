#include "braid/engine/kv/kv_store.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {

KvStore::KvStore(int64_t pages, int64_t page_size, bool share)
    : pages_(pages, page_size), tree_(page_size), share_(share) {}

KvStore::Counts KvStore::counts() const {
  const int64_t cached = tree_.evictable();
  return {pages_.available(), cached, pages_.total() - pages_.available() - cached};
}

KvHolding KvStore::open(std::string_view salt, bool shared) {
  return {.pages = {}, .path = {}, .root = tree_.root(salt), .shared = shared};
}

int64_t KvStore::cached(std::string_view salt, std::span<const int32_t> ids) const {
  if (!share_ || ids.empty()) return 0;
  return tree_.pages_of(salt, ids, (std::ssize(ids) - 1) / page_size()) * page_size();
}

int64_t KvStore::find(KvHolding& holding, std::span<const int32_t> ids) {
  if (share_ && holding.shared && holding.pages.size() == holding.path.size() && !ids.empty()) {
    tree_.descend(holding.root, ids, (std::ssize(ids) - 1) / page_size(), holding.path);
    for (size_t i = holding.pages.size(); i < holding.path.size(); ++i) {
      holding.pages.push_back(holding.path[i]->page);
    }
  }
  return std::ssize(holding.path) * page_size();
}

bool KvStore::grow(KvHolding& holding, int64_t tokens) {
  const int64_t wanted = ceil_div(tokens, page_size()) - std::ssize(holding.pages);
  if (wanted > available()) return false;
  while (wanted > pages_.available()) {
    std::vector<int32_t> page = {*tree_.evict()};
    ++evictions_;
    pages_.release(page);
  }
  pages_.reserve(holding.pages, tokens);
  return true;
}

void KvStore::keep(KvHolding& holding, std::span<const int32_t> ids, int64_t computed) {
  if (!share_ || !holding.shared) return;
  const size_t page = page_size();
  for (size_t i = holding.path.size(); (i + 1) * page <= static_cast<size_t>(computed); ++i) {
    PrefixTree::Node* const parent = i == 0 ? holding.root : holding.path.back();
    PrefixTree::Node* const node =
        tree_.extend(parent, ids.subspan(i * page, page), holding.pages[i]);
    if (node->page != holding.pages[i]) {
      // Another sequence computed the same page: one copy is enough.
      std::vector<int32_t> own = {holding.pages[i]};
      pages_.release(own);
      holding.pages[i] = node->page;
    }
    holding.path.push_back(node);
  }
}

void KvStore::close(KvHolding& holding) {
  if (holding.empty()) return;
  std::vector<int32_t> own(holding.pages.begin() + std::ssize(holding.path), holding.pages.end());
  pages_.release(own);
  tree_.release(holding.root, holding.path);
  holding = {};
}

void KvStore::check(std::span<const KvHolding* const> holdings) const {
  std::vector<int32_t> held;
  for (const KvHolding* holding : holdings) {
    held.insert(held.end(), holding->pages.begin(), holding->pages.end());
  }
  std::ranges::sort(held);
  const auto twins = std::ranges::unique(held);
  held.erase(twins.begin(), twins.end());
  const Counts now = counts();
  BRAID_CHECK(std::ssize(held) == now.held && now.free + now.cached + now.held == total(),
              "{} pages are held, {} free, {} cached of {}: {} were expected to be held",
              std::ssize(held), now.free, now.cached, total(), now.held);
}

}  // namespace braid
