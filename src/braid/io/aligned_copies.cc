#include "braid/io/aligned_copies.h"

namespace braid {
namespace {

// Blocks hold 16-bit scales and bytes: two bytes align them all.
int64_t alignment_of(DType dtype) {
  return is_quantized(dtype) ? 2 : info(dtype).block_bytes;
}

}  // namespace

TensorView AlignedCopies::aligned(const TensorView& view) {
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % static_cast<uintptr_t>(alignment_of(view.dtype)) == 0) return view;
  const std::lock_guard lock(copies_->mutex);
  auto [at, made] = copies_->by_address.try_emplace(view.data);
  if (made) at->second.assign(view.data, view.data + view.bytes());
  return make_view(at->second.data(), view.dtype, view.shape);
}

}  // namespace braid
