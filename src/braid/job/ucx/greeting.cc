#include "braid/job/ucx/greeting.h"

#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "braid/base/error.h"
#include "braid/fabric/ucx/resolve.h"
#include "braid/job/packing.h"

namespace braid::job {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMagic = 0x67726565746272;  // "rbteerg"
constexpr int64_t kMost = 4096;               // bytes of a greeting
constexpr milliseconds kPatience{500};        // with a stranger
constexpr int kLookMs = 50;                   // longest sleep of the thread between looks

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool receive_all(int fd, void* data, size_t size) {
  return recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

bool send_greeting(int fd, const Greeting& g) {
  Packer body;
  body.add(g.process).add(g.host).add(g.libraries).add(g.port);
  Packer all;
  all.add(kMagic).add(body.bytes());
  return send_all(fd, all.bytes());
}

// Nothing from strangers.
std::optional<Greeting> receive_greeting(int fd) {
  int64_t head[2] = {};  // magic, bytes
  if (!receive_all(fd, head, sizeof(head)) || head[0] != kMagic) return {};
  if (head[1] < 0 || head[1] > kMost) return {};
  std::string bytes(static_cast<size_t>(head[1]), '\0');
  if (!receive_all(fd, bytes.data(), bytes.size())) return {};
  try {
    Unpacker fields(bytes);
    Greeting g{.process = static_cast<int>(fields.number())};
    g.host = fields.text();
    g.libraries = fields.text();
    g.port = static_cast<int>(fields.number());
    return g;
  } catch (const Error&) {
    return {};
  }
}

void set_patience(int fd, milliseconds time) {
  const timeval limit{.tv_sec = time.count() / 1000, .tv_usec = time.count() % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int open_socket(const fabric::SocketAddress& address) {
  return socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

const sockaddr* raw(const fabric::SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

std::string difference(const Greeting& first, const Greeting& other) {
  if (first.libraries == other.libraries) return "";
  return fmt::format("libraries differ: rank {} on {} has '{}', rank {} on {} has '{}'",
                     first.process, first.host, first.libraries, other.process, other.host,
                     other.libraries);
}

Greeter::Greeter(const std::string& host, int port) {
  std::string why;
  const std::vector<fabric::SocketAddress> addresses = fabric::resolve(host, port);
  for (const fabric::SocketAddress& address : addresses) {
    Socket socket(open_socket(address));
    const int yes = 1;  // a restarted job listens at the last job's port
    setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(socket.fd(), raw(address), address.bytes) == 0 && ::listen(socket.fd(), 1024) == 0) {
      fd_ = socket.release();
      return;
    }
    why = std::strerror(errno);
  }
  fail(ErrorCode::kResource,
       "cannot listen at {} port {}: {}: another program has the port, or the address is not of "
       "this machine ({})",
       host, port, why, describe(addresses));
}

Greeter::~Greeter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
  close(fd_);
}

void Greeter::answer(const Greeting& mine, std::function<void()> on_refusal) {
  mine_ = mine;
  on_refusal_ = std::move(on_refusal);
  thread_ = std::thread([this] { run(); });
}

std::string Greeter::refusal() {
  std::lock_guard lock(mutex_);
  return refusal_;
}

void Greeter::run() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    pollfd fd{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&fd, 1, kLookMs) <= 0) continue;
    const Socket visitor(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
    if (visitor.fd() >= 0) answer_one(visitor.fd());
  }
}

void Greeter::answer_one(int fd) {
  set_patience(fd, kPatience);
  const std::optional<Greeting> theirs = receive_greeting(fd);
  if (!theirs || !send_greeting(fd, mine_)) return;
  const std::string refusal = difference(mine_, *theirs);
  if (refusal.empty()) return;
  {
    std::lock_guard lock(mutex_);
    if (refusal_.empty()) refusal_ = refusal;
  }
  on_refusal_();
}

std::optional<Greeting> greet(const std::string& host, int port, const Greeting& mine,
                              milliseconds deadline) {
  for (const fabric::SocketAddress& address : fabric::resolve(host, port)) {
    const Socket socket(open_socket(address));
    set_patience(socket.fd(), std::max(deadline, milliseconds(1)));  // of connect(), too
    if (connect(socket.fd(), raw(address), address.bytes) != 0) continue;
    if (!send_greeting(socket.fd(), mine)) continue;
    if (std::optional<Greeting> theirs = receive_greeting(socket.fd())) return theirs;
  }
  return {};
}

}  // namespace braid::job
