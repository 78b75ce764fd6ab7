#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "braid/base/math.h"
#include "braid/fabric/link.h"
#include "braid/fabric/symmetric.h"

namespace braid::fabric {

// Every rank's part of an allocation, each on separate pages, placed by first touch.
class LocalSegment final : public Segment {
 public:
  LocalSegment(const LinkModel& links, int ranks, std::string name, int64_t bytes)
      : Segment(std::move(name), bytes),
        links_(links),
        ranks_(ranks),
        pitch_(round_up(std::max<int64_t>(bytes, 1), kPage)) {
    const auto total = checked_mul(pitch_, ranks);
    void* memory = MAP_FAILED;
    if (total) {
      memory = mmap(nullptr, *total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) {
      fail(ErrorCode::kResource, "symmetric buffer '{}': no memory for {} bytes on {} ranks",
           this->name(), bytes, ranks);
    }
    memory_ = static_cast<std::byte*>(memory);
  }
  ~LocalSegment() override { munmap(memory_, pitch_ * ranks_); }

  std::byte* part(int rank) const { return memory_ + rank * pitch_; }
  std::byte* map(int from, int of) const override {
    return links_.speed(links_.between(from, of, ranks_)) ? nullptr : part(of);
  }

 private:
  static constexpr int64_t kPage = 4096;
  const LinkModel links_;
  const int ranks_;
  const int64_t pitch_;
  std::byte* memory_ = nullptr;  // a private mapping
};

}  // namespace braid::fabric
