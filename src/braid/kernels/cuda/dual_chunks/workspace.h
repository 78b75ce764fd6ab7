#pragma once

#include <cstddef>
#include <cstdint>

#include "braid/base/math.h"
#include "braid/tensor/dtype.h"

// Workspaces of attention with dual chunks.
namespace braid::cuda {

// Parts of a workspace, one after the other.
class WorkspaceParts {
 public:
  int64_t add(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ = round_up(at + bytes, 256);
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

inline int32_t* ints_at(std::byte* workspace, int64_t offset) {
  return reinterpret_cast<int32_t*>(workspace + offset);
}

// Queries that met a chunk each, their keys and their states.
struct StatesWork {
  StatesWork(DType dtype, int64_t queries, int64_t heads, int64_t head_dim) {
    met = parts.add(bytes_of(dtype, queries * heads * head_dim));
    states = parts.add(queries * heads * (head_dim + 2) * 4);
    rows = parts.add(queries * 4);
    begin = parts.add(queries * 4);
    end = parts.add(queries * 4);
  }
  WorkspaceParts parts;
  int64_t met, states, rows, begin, end;
};

}  // namespace braid::cuda
