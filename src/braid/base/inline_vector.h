#pragma once

#include <array>
#include <cstddef>

#include "braid/base/error.h"

namespace braid {

// A vector with at most N elements that allocates nothing.
template <class T, size_t N>
class InlineVector {
 public:
  InlineVector() = default;
  InlineVector(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }

  void push_back(const T& item) {
    BRAID_CHECK(size_ < N, "more than {} elements", N);
    items_[size_++] = item;
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& operator[](size_t i) { return items_[i]; }
  const T& back() const { return items_[size_ - 1]; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* data() const { return items_.data(); }

 private:
  std::array<T, N> items_{};
  size_t size_ = 0;
};

}  // namespace braid
