#include "braid/job/packing.h"

#include <utility>

#include "braid/base/error.h"

namespace braid::job {

Unpacker::Unpacker(std::string bytes) : bytes_(std::move(bytes)), rest_(bytes_) {}

void Unpacker::missing() const {
  fail(ErrorCode::kMalformed, "a record of the job ends too early, {} bytes are left",
       rest_.size());
}

}  // namespace braid::job
