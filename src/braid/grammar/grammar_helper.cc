#include "braid/grammar/grammar_helper.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "braid/base/clock.h"
#include "braid/base/error.h"

namespace braid {
namespace {

constexpr std::chrono::milliseconds kShortest{1}, kLongest{10};  // between two looks at the process
constexpr int kRefused = 3;
constexpr int kNice = 10;  // serving comes first
constexpr size_t kMostReason = 300;

// A file in memory, for a stream of the process.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : file_(memfd_create(name, MFD_CLOEXEC)) {
    if (file_ < 0) fail(ErrorCode::kAborted, "no file in memory: {}", std::strerror(errno));
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int file() const { return file_; }
  void write(std::string_view text) const {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(ErrorCode::kAborted, "a file in memory: {}", std::strerror(errno));
      done += static_cast<size_t>(n);
    }
    lseek(file_, 0, SEEK_SET);
  }
  int64_t size() const {
    struct stat facts {};
    return fstat(file_, &facts) == 0 ? facts.st_size : 0;
  }
  std::string read() const {
    std::string text(static_cast<size_t>(size()), '\0');
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n =
          pread(file_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    text.resize(done);
    return text;
  }

 private:
  const int file_;
};

// A process that ends with its scope.
class Process {
 public:
  Process(const std::string& program, const MemoryFile& in, const MemoryFile& out,
          const MemoryFile& errors) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.file(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out.file(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors.file(), STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    std::string name = "braid", argument = kHelperArgument;
    char* arguments[] = {name.data(), argument.data(), nullptr};
    const int error = posix_spawn(&id_, program.c_str(), &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      id_ = -1;
      fail(ErrorCode::kAborted, "{} {} cannot be started: {}", program, kHelperArgument,
           std::strerror(error));
    }
  }
  ~Process() {
    if (id_ < 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The status, as from waitpid, after the process has ended.
  std::optional<int> ended() {
    int status = 0;
    const pid_t done = waitpid(id_, &status, WNOHANG);
    if (done == 0 || (done < 0 && errno == EINTR)) return {};
    id_ = -1;
    return status;
  }
  // Bytes in use.
  int64_t memory() const {
    std::ifstream file("/proc/" + std::to_string(id_) + "/statm");
    int64_t pages = 0, resident = 0;
    file >> pages >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }

 private:
  pid_t id_ = -1;
};

// A reason's line, without the leading place in xgrammar's sources.
std::string reason_of(std::string text) {
  const size_t place = text.find(".cc:");
  const size_t behind = place == std::string::npos ? std::string::npos : text.find(": ", place + 4);
  if (behind != std::string::npos) text = text.substr(behind + 2);
  if (text.starts_with("Warning: ")) text = text.substr(9);
  text = text.substr(0, text.find('\n'));
  return text.size() > kMostReason ? text.substr(0, kMostReason) + "..." : text;
}

}  // namespace

std::string helper_input(const GrammarTokens& tokens, const std::string& tag) {
  std::vector<size_t> sizes;
  std::string texts;
  for (const std::string& text : tokens.texts) {
    sizes.push_back(text.size());
    texts += text;
  }
  const nlohmann::json head = {
      {"tag", tag}, {"ends", tokens.ends}, {"vocabulary", tokens.vocabulary}, {"sizes", sizes}};
  return head.dump() + "\n" + texts;
}

int compile_grammar_main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpriority(PRIO_PROCESS, 0, kNice);
  try {
    std::string line;
    std::getline(std::cin, line);
    const nlohmann::json head = nlohmann::json::parse(line);
    GrammarTokens tokens{.ends = head.at("ends"), .vocabulary = head.at("vocabulary")};
    const std::string texts(std::istreambuf_iterator<char>(std::cin), {});
    size_t at = 0;
    for (const size_t size : head.at("sizes")) {
      tokens.texts.push_back(texts.substr(at, size));
      at += size;
    }
    const std::string text = GrammarLibrary(tokens).compile(head.at("tag"));
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fputs(error.what(), stdout);
    return std::fflush(stdout) == 0 ? kRefused : 1;
  }
}

std::string compile_apart(const std::string& program, const std::string& input,
                          const GrammarLimits& limits, const std::atomic<bool>& stop) {
  if (stop) fail(ErrorCode::kAborted, "the server is ending");
  const MemoryFile in("grammar"), out("compiled"), errors("errors");
  in.write(input);
  Process process(program, in, out, errors);
  const double begin = steady_seconds();
  std::optional<int> status;
  for (auto pause = kShortest; !(status = process.ended()); pause = std::min(2 * pause, kLongest)) {
    if (stop) fail(ErrorCode::kAborted, "the server is ending");
    if (steady_seconds() - begin > limits.seconds) {
      fail(ErrorCode::kInvalidArgument,
           "the grammar takes over {} s to compile, which is the limit", limits.seconds);
    }
    if (process.memory() > limits.memory) {
      fail(ErrorCode::kInvalidArgument,
           "the grammar takes over {} MiB to compile, which is the limit", limits.memory >> 20);
    }
    std::this_thread::sleep_for(pause);
  }
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == kRefused)
    fail(ErrorCode::kInvalidArgument, "{}", reason_of(out.read()));
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    fail(ErrorCode::kInvalidArgument, "the grammar is too deep to compile");
  // xgrammar reports words that it would drop.
  if (errors.size() > 0) fail(ErrorCode::kInvalidArgument, "{}", reason_of(errors.read()));
  if (out.size() > limits.result) {
    fail(ErrorCode::kInvalidArgument, "the compiled grammar has {} MiB, the limit is {}",
         out.size() >> 20, limits.result >> 20);
  }
  return out.read();
}

}  // namespace braid
