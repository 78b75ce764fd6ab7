#include "braid/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "braid/base/error.h"

namespace braid {
namespace {

class FileHandle {
 public:
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  explicit FileHandle(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string reason(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void fail_to_open(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    fail(ErrorCode::kNotFound, "{}: no such file", path);
  }
  fail(ErrorCode::kResource, "{}: cannot be opened: {}", path, reason(error));
}

size_t mappable_size(const std::string& path, int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_to_open(path, errno);
  if (S_ISDIR(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "{}: is a folder, a file is wanted", path);
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "{}: is no regular file", path);
  }
  if (status.st_size == 0) fail(ErrorCode::kInvalidArgument, "{}: the file is empty", path);
  return static_cast<size_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // A path with a NUL inside would open another file than it names.
  if (path.find('\0') != std::string::npos) fail_to_open(path.c_str(), ENOENT);
  const FileHandle file(path);
  if (file.get() < 0) fail_to_open(path, errno);
  const size_t size = mappable_size(path, file.get());
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    fail(ErrorCode::kResource, "{}: {} bytes cannot be mapped: {}", path, size, reason(errno));
  }
  mapping_ =
      std::make_unique<KnownMapping>(path, std::span(static_cast<const std::byte*>(address), size));
}

MappedFile::~MappedFile() {
  if (!mapping_) return;
  const std::span<const std::byte> bytes = mapping_->bytes();
  mapping_.reset();  // before others may map something there
  ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept = default;

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

void MappedFile::advise(int64_t offset, int64_t length, Advice advice) const {
  BRAID_CHECK(0 <= offset && 0 <= length && offset <= size() - length, "{} bytes at {} of {}",
              length, offset, path_);
  braid::advise(bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(length)), advice);
}

void advise(std::span<const std::byte> bytes, Advice advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t end = begin + bytes.size();
  // Pages at the edges hold neighbouring bytes too: they are read ahead with these bytes, not
  // forgotten.
  const bool forget = advice == Advice::kDontNeed;
  const uintptr_t first = (forget ? begin + page - 1 : begin) / page * page;
  const uintptr_t last = forget ? end / page * page : end;
  if (bytes.empty() || first >= last) return;
  const int flag = forget                          ? MADV_DONTNEED
                   : advice == Advice::kSequential ? MADV_SEQUENTIAL
                                                   : MADV_WILLNEED;
  ::madvise(reinterpret_cast<void*>(first), last - first, flag);
}

}  // namespace braid
