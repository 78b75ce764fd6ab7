#include "braid/fabric/endpoint_rules.h"

#include "braid/base/math.h"

namespace braid::fabric {

void check_range(const Endpoint& endpoint, SymPtr<std::byte> at, int peer, const Block& block,
                 int64_t stride) {
  const int rank = endpoint.rank(), world = endpoint.world_size();
  BRAID_CHECK(at.segment != nullptr, "rank {}: a verb on no buffer", rank);
  BRAID_CHECK(peer >= 0 && peer < world, "rank {}: peer {} of {}", rank, peer, world);
  // From the first to the last that the block touches.
  const int64_t bytes = block.rows == 0 ? 0 : (block.rows - 1) * stride + block.row_bytes;
  BRAID_CHECK(block.row_bytes >= 0 && block.rows >= 0 && at.offset >= 0 &&
                  (block.rows <= 1 || stride >= block.row_bytes) &&
                  at.offset <= at.segment->bytes() - bytes,
              "rank {}: {} rows of {} bytes, stride {}, at {} of '{}', which has {}", rank,
              block.rows, block.row_bytes, stride, at.offset, at.segment->name(),
              at.segment->bytes());
}

int64_t buffer_bytes(int64_t count, int64_t elem_bytes, std::string_view name) {
  const auto bytes = count < 0 ? std::nullopt : checked_mul(count, elem_bytes);
  if (!bytes) {
    fail(ErrorCode::kInvalidArgument, "symmetric buffer '{}': {} elements of {} bytes", name, count,
         elem_bytes);
  }
  return *bytes;
}

std::string describe_wait(const std::string& tag, SymPtr<Signal> slot, const WaitFor& what,
                          uint64_t expected, uint64_t seen) {
  return fmt::format("'{}', signal {} of '{}'{}: expected {}, seen {}", tag,
                     slot.offset / int64_t{sizeof(Signal)}, slot.segment->name(),
                     what.from >= 0 ? fmt::format(" from rank {}", what.from) : "", expected, seen);
}

std::string describe_transfer(const std::string& tag, Verb verb, int64_t bytes, int peer) {
  const bool put = verb == Verb::put;
  return fmt::format("'{}', {} of {} bytes {} rank {}", tag, put ? "put" : "get", bytes,
                     put ? "to" : "from", peer);
}

}  // namespace braid::fabric
