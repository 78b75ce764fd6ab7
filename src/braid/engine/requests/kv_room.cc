#include "braid/engine/requests/kv_room.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {
namespace {

constexpr int64_t kShareOfFree = 4;  // a quarter of the free memory

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// A number of bytes in a file, as cgroups have.
std::optional<int64_t> read_bytes(const char* path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  if (file >> bytes) return bytes;
  return {};
}

}  // namespace

KvRoom kv_room(const KvRoomRequest& r) {
  const int64_t page_bytes = r.token_bytes * r.page_size;
  const int64_t bytes = r.bytes_wanted > 0 ? r.bytes_wanted : r.bytes_free / kShareOfFree;
  const int64_t all = r.sequences * ceil_div(r.context, r.page_size);
  const int64_t pages = std::min(all, bytes / page_bytes);
  const int64_t needed = r.context_named ? ceil_div(r.context, r.page_size) : 2;
  if (pages < needed) {
    const std::string there = r.bytes_wanted > 0
                                  ? mebibytes(bytes) + " was asked for"
                                  : fmt::format("{} is a quarter of the {} that are free",
                                                mebibytes(bytes), mebibytes(r.bytes_free));
    const std::string fits = pages < 2 ? "" : fmt::format(" {}", pages * r.page_size);
    fail(ErrorCode::kResource,
         "the KV cache of a sequence of {} tokens takes {}, {}, which holds {} tokens: pass "
         "--kv-memory SIZE or --max-model-len{}",
         needed * r.page_size, mebibytes(needed * page_bytes), there, pages * r.page_size, fits);
  }
  return {pages, std::min(r.context, pages * r.page_size)};
}

int64_t kv_token_bytes(const ModelConfig& config, DType dtype) {
  return config.layers * config.cached_numbers() * bytes_of(dtype, 1);
}

// Bytes of a group's cached files, which the system may drop.
int64_t cached_files() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  int64_t bytes = 0, sum = 0;
  while (file >> name >> bytes) {
    if (name == "active_file" || name == "inactive_file") sum += bytes;
  }
  return sum;
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kib = 0, available = std::numeric_limits<int64_t>::max();
  while (file >> name) {
    if (name == "MemAvailable:" && file >> kib) available = kib << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  const auto limit = read_bytes("/sys/fs/cgroup/memory.max");
  const auto used = read_bytes("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    available = std::min(available, std::max<int64_t>(0, *limit - *used + cached_files()));
  }
  return available;
}

std::optional<int64_t> parse_size(std::string_view text) {
  if (text == "auto") return 0;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0) || number > 1e15) return {};
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  static constexpr std::string_view kUnits = "kmgt";
  if (unit.empty() || unit == "b") return static_cast<int64_t>(number);
  const size_t power = kUnits.find(unit[0]);
  if (power == std::string_view::npos) return {};
  if (unit.size() > 1 && unit.substr(1) != "b" && unit.substr(1) != "ib") return {};
  return static_cast<int64_t>(number * static_cast<double>(int64_t{1} << (10 * (power + 1))));
}

}  // namespace braid
