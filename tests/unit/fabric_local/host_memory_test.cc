// Memory that the processes of a host share.
#include "braid/fabric/local/host_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace braid::fabric {
namespace {

constexpr int64_t kBytes = 4 * HostMemory::kPage;

// Whether fn, in a process of its own, returns true.
bool in_a_process(const std::function<bool()>& fn) {
  const pid_t pid = fork();
  if (pid == 0) _exit(fn() ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::atomic_ref<uint64_t> word(std::byte* part, int64_t index) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(part)[index]);
}

TEST(HostMemory, AnotherProcessReadsWritesAndRings) {
  const auto memory = HostMemory::make(2);
  const int64_t offset = memory->begin();
  // Before the owner has the part: what is written there waits.
  ASSERT_TRUE(in_a_process([&] {
    const auto other = HostMemory::open(memory->name(), 2);
    std::byte* const part = other ? other->map(offset, kBytes) : nullptr;
    if (part == nullptr) return false;
    word(part, 3).store(33);
    return true;
  }));
  std::byte* const part = memory->map(offset, kBytes);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(word(part, 3).load(), 33u);
  EXPECT_EQ(word(part, 4).load(), 0u);

  // The owner sleeps at its second doorbell until the other process rings there.
  bool rang = false;
  std::thread waiter([&] {
    rang = memory->doorbell(1).wait({}, Clock::now() + std::chrono::seconds(60),
                                    [&] { return word(part, 0).load() == 7; });
  });
  EXPECT_TRUE(in_a_process([&] {
    const auto other = HostMemory::open(memory->name(), 2);
    std::byte* const its = other->map(offset, kBytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // the waiter sleeps by then
    word(its, 0).store(7);
    other->doorbell(1).ring();
    return true;
  }));
  waiter.join();
  EXPECT_TRUE(rang);
  memory->unmap(part, offset, kBytes);
}

TEST(HostMemory, APartThatItsOwnerGaveBackIsZeroedAgain) {
  const auto memory = HostMemory::make(1);
  std::byte* part = memory->map(memory->begin(), kBytes);
  ASSERT_NE(part, nullptr);
  word(part, 9).store(1);
  const auto other = HostMemory::open(memory->name(), 1);
  ASSERT_TRUE(other);
  std::byte* const its = other->map(memory->begin(), kBytes);
  EXPECT_EQ(word(its, 9).load(), 1u);
  other->unmap(its, memory->begin(), kBytes);
  EXPECT_EQ(word(part, 9).load(), 1u);  // only the owner gives it back
  memory->unmap(part, memory->begin(), kBytes);
  part = memory->map(memory->begin(), kBytes);
  EXPECT_EQ(word(part, 9).load(), 0u);
  memory->unmap(part, memory->begin(), kBytes);
}

TEST(HostMemory, OnlyTheNamedFileIsTaken) {
  const auto memory = HostMemory::make(1);
  ASSERT_NE(memory->name(), "");
  EXPECT_TRUE(HostMemory::open(memory->name(), 1));
  EXPECT_FALSE(HostMemory::open("", 1));
  EXPECT_FALSE(HostMemory::open("a name", 1));
  EXPECT_FALSE(HostMemory::open(memory->name() + "0", 1));  // another mark
  EXPECT_FALSE(HostMemory::open(fmt::format("{} 0 1", getpid()), 1));
  const auto other = HostMemory::make(1);
  EXPECT_NE(other->name(), memory->name());
}

// The kernel ends a process that makes a larger file than it may.
TEST(HostMemory, ALimitOfFilesLeavesMemoryOfTheProcess) {
  EXPECT_TRUE(in_a_process([] {
    const rlimit limit{1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const auto memory = HostMemory::make(1);
    std::byte* const part = memory->map(memory->begin(), 4 << 20);
    if (!memory->name().empty() || part == nullptr) return false;
    word(part, 1000).store(5);
    memory->doorbell(0).ring();
    memory->unmap(part, memory->begin(), 4 << 20);
    return true;
  }));
}

TEST(HostMemory, HasNoRoomForMoreThanTheHostHas) {
  EXPECT_TRUE(HostMemory::has_room(0, 1 << 20));
  EXPECT_FALSE(HostMemory::has_room(0, int64_t{1} << 45));
  EXPECT_FALSE(HostMemory::has_room(int64_t{1} << 46, HostMemory::kPage));
}

}  // namespace
}  // namespace braid::fabric
