#include "braid/engine/job_times.h"

#include <bit>

#include "braid/job/packing.h"

namespace braid {

void JobTimes::gather(std::vector<Times>& all, std::span<const Times> mine) {
  job::Packer packer;
  for (const Times& times : mine) {
    packer.add(std::ssize(times));
    for (const LaunchTime& t : times) {
      packer.add(std::bit_cast<int64_t>(t.begin)).add(std::bit_cast<int64_t>(t.end));
    }
  }
  const std::vector<std::string> packed = job_.gather("times of launches", packer.bytes());
  for (size_t p = 1; p < packed.size(); ++p) {
    job::Unpacker fields(packed[p]);
    const auto seconds = [&] { return std::bit_cast<double>(fields.number()) - ahead_[p]; };
    for (size_t i = 0; i < mine.size(); ++i) {
      Times& times = all[p * mine.size() + i];
      times.resize(fields.number());
      for (LaunchTime& t : times) {
        t.begin = seconds();
        t.end = seconds();
      }
    }
  }
}

}  // namespace braid
