#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "braid/base/error.h"
#include "braid/io/tensor_table.h"

namespace braid::test {

// What must hold of every table that a parser hands out over `bytes`, where reading past them is
// seen (memory of exactly the file's size): each tensor is found by its name, and its view is
// either refused as unsupported or aligned and as long as it was said to be, with readable ends.
inline void read_tensors(const TensorTable& tensors, std::span<const std::byte> bytes) {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  };
  for (const TensorRecord& record : tensors.records()) {
    check(tensors.find(record.name) == &record, "a tensor is not found by its name");
    try {
      const TensorView view = tensors.view(record, bytes);
      const int alignment = is_quantized(view.dtype) ? 2 : info(view.dtype).block_bytes;
      check(reinterpret_cast<uintptr_t>(view.data) % alignment == 0, "a view is not aligned");
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
