#include "braid/fabric/local/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <random>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::fabric {
namespace {

// Of every file, most of them holes: room for all parts of a process' life.
constexpr int64_t kFileBytes = int64_t{1} << 46;

// Without a limit to the size of files, beyond which the kernel ends a process.
int make_file() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return -1;
  constexpr unsigned kNotExecutable = 8;  // MFD_NOEXEC_SEAL, which some kernels ask for
  int file = memfd_create("braid", MFD_CLOEXEC | kNotExecutable);
  if (file < 0 && errno == EINVAL) file = memfd_create("braid", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, kFileBytes) != 0) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace

HostMemory::HostMemory(int file, bool own, int ranks)
    : file_(file),
      own_(own),
      begin_(round_up(static_cast<int64_t>(sizeof(Doorbell)) * (ranks + 1), kPage)) {
  first_ = map(0, begin_);
  if (first_ != nullptr) doorbells_ = reinterpret_cast<Doorbell*>(first_) + 1;
}

HostMemory::~HostMemory() {
  if (first_ != nullptr) munmap(first_, static_cast<size_t>(begin_));
  if (file_ >= 0) close(file_);
}

std::shared_ptr<HostMemory> HostMemory::make(int ranks) {
  const int file = make_file();
  std::shared_ptr<HostMemory> memory(new HostMemory(file, true, ranks));
  if (memory->first_ == nullptr) fail(ErrorCode::kResource, "no memory for doorbells");
  for (int r = 0; r < ranks; ++r) new (memory->doorbells_ + r) Doorbell();
  if (file < 0) return memory;
  // Numbers of processes and files may mean others in another container.
  std::random_device random;
  const uint64_t mark = uint64_t{random()} << 32 | random();
  new (memory->first_) uint64_t(mark);
  memory->name_ = fmt::format("{} {} {}", getpid(), file, mark);
  return memory;
}

std::shared_ptr<HostMemory> HostMemory::open(const std::string& name, int ranks) {
  int pid = 0, number = 0;
  unsigned long long mark = 0;
  if (std::sscanf(name.c_str(), "%d %d %llu", &pid, &number, &mark) != 3) return nullptr;
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return nullptr;
  if (lseek(file, 0, SEEK_END) != kFileBytes) {
    close(file);
    return nullptr;
  }
  std::shared_ptr<HostMemory> memory(new HostMemory(file, false, ranks));
  if (memory->first_ == nullptr) return nullptr;
  if (*reinterpret_cast<const uint64_t*>(memory->first_) != mark) return nullptr;
  memory->name_ = name;
  return memory;
}

bool HostMemory::has_room(int64_t offset, int64_t bytes) {
  const int64_t physical = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return bytes <= physical && offset <= kFileBytes - bytes;
}

std::byte* HostMemory::map(int64_t offset, int64_t bytes) const {
  const int kind = file_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, kind,
                            file_, file_ >= 0 ? offset : 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void HostMemory::unmap(std::byte* part, int64_t offset, int64_t bytes) const {
  munmap(part, static_cast<size_t>(bytes));
  if (own_ && file_ >= 0) {
    // A failure only keeps the memory until the file goes.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }
}

}  // namespace braid::fabric
