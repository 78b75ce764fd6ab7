#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string>

namespace braid {

// After this call, a read of a mapped file (MappedFile) whose bytes are gone (another process cut
// the file, or its disk fails) ends this process with status 1 and a line on standard error with
// the file's name. Without this call the system ends the process by SIGBUS. Every other SIGBUS is
// handled as before. For a program's main function; once.
void report_mapping_faults();

// A mapping that report_mapping_faults knows, for as long as the object lives. Costs a search for a
// free place among kMost; mappings beyond kMost are not known.
class KnownMapping {
 public:
  static constexpr size_t kMost = 4096;

  KnownMapping(std::string path, std::span<const std::byte> bytes);
  ~KnownMapping();
  KnownMapping(const KnownMapping&) = delete;
  KnownMapping& operator=(const KnownMapping&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  const std::string path_;
  const std::span<const std::byte> bytes_;
  std::atomic<const KnownMapping*>* place_ = nullptr;
};

}  // namespace braid
