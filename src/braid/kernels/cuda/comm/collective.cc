#include "braid/kernels/cuda/comm/collective.h"

#include <fmt/format.h>

#include "braid/base/error.h"

namespace braid::cuda {

std::string_view to_string(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::all_reduce:
      return "all_reduce";
    case CollectiveOp::reduce_scatter:
      return "reduce_scatter";
    case CollectiveOp::all_gather:
      return "all_gather";
    case CollectiveOp::all_to_all:
      return "all_to_all";
  }
  return "?";
}

std::string_view to_string(CommAlgorithm algorithm) {
  switch (algorithm) {
    case CommAlgorithm::line:
      return "line";
    case CommAlgorithm::direct:
      return "direct";
    case CommAlgorithm::copy_engine:
      return "copy_engine";
    case CommAlgorithm::staged:
      return "staged";
  }
  return "?";
}

int64_t CollectiveDesc::bytes() const {
  return elems() * info(dtype).block_bytes;
}

std::string to_string(const CollectiveDesc& d) {
  return fmt::format("{} {} [{}{}, {}] P{}{}{}", to_string(d.op), name(d.dtype), d.rows,
                     d.live_rows ? " live" : "", d.cols, d.ranks, d.x_symmetric ? "" : " x local",
                     d.y_symmetric ? "" : " y local");
}

void verify(const CollectiveDesc& d) {
  const bool sums = d.op == CollectiveOp::all_reduce || d.op == CollectiveOp::reduce_scatter;
  if (d.ranks < 1 || d.ranks > kMaxCommRanks) {
    fail(ErrorCode::kInvalidArgument, "{}: {} ranks, must be 1 to {}", to_string(d.op), d.ranks,
         kMaxCommRanks);
  }
  if (is_quantized(d.dtype) || (sums && !is_float(d.dtype))) {
    fail(ErrorCode::kUnsupported, "{}: dtype {}, must be {}", to_string(d.op), name(d.dtype),
         sums ? "bf16, f16 or f32" : "a plain type");
  }
  const auto elems = checked_mul(d.rows, d.cols);
  if (d.rows < 0 || d.rows > 0x7fffffff || d.cols < 0 || !elems || !checked_mul(*elems, 64)) {
    fail(ErrorCode::kInvalidArgument, "{}: [{}, {}] elements", to_string(d.op), d.rows, d.cols);
  }
  if (d.op == CollectiveOp::all_to_all && (d.rows % d.ranks != 0 || d.live_rows)) {
    fail(ErrorCode::kInvalidArgument,
         "all_to_all: {}{} rows, must be a fixed multiple of the {} ranks", d.rows,
         d.live_rows ? " live" : "", d.ranks);
  }
}

CommVolume volume(const CollectiveDesc& d, CommAlgorithm algorithm, int rank, int peer) {
  if (rank == peer) return {};
  const int64_t row_bytes = d.cols * info(d.dtype).block_bytes;
  const bool staged = algorithm == CommAlgorithm::staged;
  const auto rows_of = [&](int r) {
    const bool whole = staged && d.live_rows;  // the largest part that a rank may have
    return even_part(d.rows, d.ranks, whole ? 0 : r).size() * row_bytes;
  };
  switch (d.op) {
    case CollectiveOp::all_reduce: {
      if (algorithm == CommAlgorithm::line || staged) return {.put = d.bytes()};
      const int64_t elem_bytes = info(d.dtype).block_bytes;
      const int64_t part =
          direct_part(d.elems(), 16 / elem_bytes, d.ranks, rank).size() * elem_bytes;
      return {.put = part, .get = part};
    }
    case CollectiveOp::reduce_scatter:
      return algorithm == CommAlgorithm::line || staged ? CommVolume{.put = rows_of(peer)}
                                                        : CommVolume{.get = rows_of(rank)};
    case CollectiveOp::all_gather:
      return {.put = rows_of(rank)};
    case CollectiveOp::all_to_all:
      return {.put = d.bytes() / d.ranks};
  }
  return {};
}

}  // namespace braid::cuda
