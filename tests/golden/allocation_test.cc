// Within a capacity a step allocates nothing: counted through the program's own operator new.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "braid/engine/runner.h"
#include "golden/support/random_model.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace braid::golden {
namespace {

TEST(AllocationTest, TheCounterCounts) {
  counting = true;
  auto number = std::make_unique<int>(3);
  counting = false;
  EXPECT_EQ(*number, 3);
  EXPECT_EQ(allocations.exchange(0), 1);
}

TEST(AllocationTest, DecodeStepsAllocateNothing) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("braid_allocation_{}", getpid());
  std::filesystem::create_directories(folder);
  write_hf_folder(load_random_model("smollm2"), folder);
  const Model model(folder.string());
  for (int tp : {1, 2}) {
    SCOPED_TRACE(tp);
    Runner runner(
        model,
        {.tp = tp,
         .threads = 2,
         .cache = {.pages = 8, .page_size = 16, .pages_per_sequence = 8, .kv_dtype = DType::f32}});
    const std::vector<int32_t> pages = {0, 1, 2, 3, 4, 5, 6, 7};
    const int32_t token = 5;
    Batch batch(16);
    for (int64_t cached = 0; cached < 60; ++cached) {
      counting = cached >= 3;  // the first steps plan, bind and fill caches
      batch.clear();
      batch.add({&token, 1}, cached, pages, 1);
      runner.run(batch);
    }
    counting = false;
    EXPECT_EQ(allocations.exchange(0), 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace braid::golden
