#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "braid/io/mapping_fault.h"

namespace braid {

// A hint about bytes of a mapping: they are read front to back, are to be read ahead, or may be
// forgotten (only the whole pages; a later touch reads them again). Never fails.
enum class Advice { kSequential, kWillNeed, kDontNeed };
void advise(std::span<const std::byte> bytes, Advice advice);

// A regular file, mapped read-only for as long as the object lives (moving it keeps the address).
// Mapping reads nothing: pages come from disk at first touch. A file that another process truncates
// while it is mapped faults at the lost pages (SIGBUS), as with any mapping: report_mapping_faults
// makes one line of that.
class MappedFile {
 public:
  // Fails with kNotFound (no such file), kInvalidArgument (a directory, an empty or special file)
  // or kResource (permission, address space).
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(bytes().size()); }
  std::span<const std::byte> bytes() const {
    return mapping_ ? mapping_->bytes() : std::span<const std::byte>();
  }

  // As braid::advise, for [offset, offset + length), which lies in the file.
  void advise(int64_t offset, int64_t length, Advice advice) const;

 private:
  std::string path_;
  std::unique_ptr<const KnownMapping> mapping_;  // null after a move
};

}  // namespace braid
