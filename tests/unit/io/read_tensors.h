#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>

#include "braid/base/error.h"
#include "braid/io/aligned_copies.h"
#include "braid/io/tensor_table.h"

namespace braid::test {

// What must hold of every table that a parser hands out over `bytes`, where reading past them is
// seen (memory of exactly the file's size): each tensor is found by its name, and its view is
// either refused as unsupported or as long as it was said to be, with readable ends, and aligned
// copies hold the same bytes.
inline void read_tensors(const TensorTable& tensors, std::span<const std::byte> bytes) {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  };
  AlignedCopies copies;
  for (const TensorRecord& record : tensors.records()) {
    check(tensors.find(record.name) == &record, "a tensor is not found by its name");
    try {
      const TensorView view = tensors.view(record, bytes);
      const int alignment = is_quantized(view.dtype) ? 2 : info(view.dtype).block_bytes;
      const TensorView aligned = copies.aligned(view);
      check(reinterpret_cast<uintptr_t>(aligned.data) % alignment == 0, "a view is not aligned");
      check(aligned.shape == view.shape && aligned.dtype == view.dtype, "a copy is another tensor");
      check(view.bytes() == 0 || std::memcmp(aligned.data, view.data, view.bytes()) == 0,
            "a copy holds other bytes");
      check(view.bytes() == record.bytes, "a view has another size than its record");
      const volatile std::byte* data = view.data;
      if (view.bytes() == 0) continue;
      static_cast<void>(std::byte{data[0]});
      static_cast<void>(std::byte{data[view.bytes() - 1]});
    } catch (const Error& error) {
      check(error.code() == ErrorCode::kUnsupported, "a checked record is refused as malformed");
    }
  }
}

}  // namespace braid::test
