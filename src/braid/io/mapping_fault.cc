#include "braid/io/mapping_fault.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

namespace braid {
namespace {

// A signal handler has no argument: its data is global.
std::array<std::atomic<const KnownMapping*>, KnownMapping::kMost> known;
struct sigaction before;

// Called by a signal handler from here on: no allocation, no lock, no stdio.
void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void say(uint64_t number) {
  std::array<char, 20> digits;
  size_t at = digits.size();
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  say(std::string_view(&digits[at], digits.size() - at));
}

const KnownMapping* mapping_at(const void* address) {
  for (const auto& place : known) {
    const KnownMapping* mapping = place.load(std::memory_order_acquire);
    if (mapping == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(mapping->bytes().data());
    if (reinterpret_cast<uintptr_t>(address) - begin < mapping->bytes().size()) return mapping;
  }
  return nullptr;
}

void explain(const KnownMapping& mapping) {
  struct stat now {};
  const bool there = ::stat(mapping.path().c_str(), &now) == 0;
  say("braid: ");
  say(mapping.path());
  if (there && static_cast<uint64_t>(now.st_size) < mapping.bytes().size()) {
    say(": the file was cut while it was in use: it had ");
    say(mapping.bytes().size());
    say(" bytes and now has ");
    say(static_cast<uint64_t>(now.st_size));
  } else {
    say(": the file cannot be read any more: it was cut while it was in use, or its disk fails");
  }
  say("\n");
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const bool fault = info->si_code > 0;  // not sent by a process: the address is one
  if (fault) {
    if (const KnownMapping* mapping = mapping_at(info->si_addr)) {
      explain(*mapping);
      ::_exit(1);
    }
  }
  // As if this handler were not there: the same access faults again, a sent signal is sent again.
  ::sigaction(signal, &before, nullptr);
  if (!fault) ::raise(signal);
}

}  // namespace

void report_mapping_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &before);
}

KnownMapping::KnownMapping(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {
  for (auto& place : known) {
    const KnownMapping* free = nullptr;
    if (place.compare_exchange_strong(free, this, std::memory_order_acq_rel)) {
      place_ = &place;
      return;
    }
  }
}

KnownMapping::~KnownMapping() {
  if (place_ != nullptr) place_->store(nullptr, std::memory_order_release);
}

}  // namespace braid
