#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "braid/base/error.h"

namespace braid {

// Up to kMaxRank dimensions, outermost first. A plain value: copied freely, no allocation.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    BRAID_CHECK(dims.size() <= kMaxRank, "rank {}", dims.size());
    for (int64_t d : dims) dims_[rank_++] = d;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  int64_t& operator[](int i) { return dims_[i < 0 ? i + rank_ : i]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  void push_back(int64_t d) {
    BRAID_CHECK(rank_ < kMaxRank);
    dims_[rank_++] = d;
  }
  int64_t elems() const {
    int64_t n = 1;
    for (int64_t d : *this) n *= d;
    return n;
  }
  // Product of all dimensions but the last: rows of a row-major matrix view.
  int64_t rows() const {
    return rank_ == 0 ? 1 : elems() / (dims_[rank_ - 1] ? dims_[rank_ - 1] : 1);
  }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i) {
      if (dims_[i] != other.dims_[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[512, 9, 64]"

}  // namespace braid
