#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace braid::cpu {

// Which threads share a word: threads of this process (a faster lookup), or of several processes.
enum class FutexScope : uint8_t { process, machine };

// Sleeps while the word has the expected value, at most for `timeout`; may return early.
void futex_sleep(const std::atomic<uint32_t>& word, uint32_t expected,
                 std::chrono::nanoseconds timeout, FutexScope scope);
void futex_wake_all(const std::atomic<uint32_t>& word, FutexScope scope);

}  // namespace braid::cpu
