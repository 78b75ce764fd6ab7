#include "braid/engine/kv/kv_pages.h"

#include <algorithm>
#include <functional>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {

KvPages::KvPages(int64_t pages, int64_t page_size) : page_size_(page_size), total_(pages) {
  BRAID_CHECK(pages >= 0 && page_size > 0);
  for (int64_t i = 0; i < pages; ++i) free_.push_back(static_cast<int32_t>(i));
  std::ranges::make_heap(free_, std::greater<>());
}

void KvPages::reserve(std::vector<int32_t>& pages, int64_t tokens) {
  const int64_t wanted = ceil_div(tokens, page_size_) - std::ssize(pages);
  if (wanted > available()) {
    fail(ErrorCode::kResource, "the KV cache has {} of {} pages of {} tokens left, {} are needed",
         available(), total_, page_size_, wanted);
  }
  for (int64_t i = 0; i < wanted; ++i) {
    std::ranges::pop_heap(free_, std::greater<>());
    pages.push_back(free_.back());
    free_.pop_back();
  }
}

void KvPages::release(std::vector<int32_t>& pages) {
  for (int32_t page : pages) {
    free_.push_back(page);
    std::ranges::push_heap(free_, std::greater<>());
  }
  pages.clear();
}

}  // namespace braid
