#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "bad_network.h"

// Hosts on one machine: network namespaces with host names of their own, joined by a bridge, or by
// a network that delays and loses.
namespace braid::job {

class Namespaces {
 public:
  // Needs root; here() says whether it worked.
  explicit Namespaces(int hosts, const std::optional<Weather>& weather = {})
      : hosts_(hosts), name_(fmt::format("brd{}{}", getpid() % 100000, fresh_letter())) {
    if (weather) {
      join_by(*weather);
      return;
    }
    good_ = geteuid() == 0 && run("ip link add {0} type bridge && ip link set {0} up", name_);
    for (int h = 0; h < hosts && good_; ++h) {
      const std::string host = host_of(h);
      good_ =
          run("ip netns add {0} && ip link add {0} type veth peer name eth0 netns {0} && "
              "ip link set {0} master {1} up && ip -n {0} addr add {2}/24 dev eth0 && "
              "ip -n {0} link set eth0 up && ip -n {0} link set lo up",
              host, name_, address(h));
    }
  }
  ~Namespaces() {
    for (int h = 0; h < hosts_; ++h) run("ip netns del {0}", host_of(h));
    run("ip link del {0}", name_);
  }
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  bool here() const { return good_; }
  const BadNetwork* network() const { return network_ ? &*network_ : nullptr; }
  std::string host_of(int h) const { return fmt::format("{}n{}", name_, h); }
  static std::string address(int h) { return fmt::format("10.213.77.{}", h + 1); }

  // Makes this process one of that host; it talks by TCP from now on.
  bool enter(int h) const {
    const int fd = open(("/var/run/netns/" + host_of(h)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool good = fd >= 0 && setns(fd, CLONE_NEWNET) == 0 && unshare(CLONE_NEWUTS) == 0 &&
                      sethostname(host_of(h).c_str(), host_of(h).size()) == 0;
    if (fd >= 0) close(fd);
    setenv("UCX_TLS", "tcp,self", 1);  // UCX takes namespaces of one machine for one host
    return good;
  }
  // The host is reached no more.
  bool cut(int h) const { return run("ip link set {0} down", host_of(h)); }
  bool join(int h) const { return run("ip link set {0} up", host_of(h)); }

 private:
  // Devices of an earlier network may be on their way out: each has names of its own.
  static char fresh_letter() {
    static int made = 0;
    return static_cast<char>('a' + made++ % 26);
  }

  void join_by(const Weather& weather) {
    std::vector<std::string> names;
    for (int h = 0; h < hosts_; ++h) names.push_back(host_of(h) + "t");
    good_ = geteuid() == 0 && network_.emplace(names, weather).good();
    for (int h = 0; h < hosts_ && good_; ++h) {
      good_ =
          run("ip netns add {0} && ip link set {0}t netns {0} && ip -n {0} link set {0}t name eth0 "
              "&& ip -n {0} addr add {1}/24 dev eth0 && ip -n {0} link set eth0 up && "
              "ip -n {0} link set lo up",
              host_of(h), address(h));
    }
  }

  template <class... Args>
  static bool run(fmt::format_string<Args...> format, Args&&... args) {
    const std::string command = fmt::format(format, std::forward<Args>(args)...);
    return std::system(("(" + command + ") > /dev/null 2>&1").c_str()) == 0;
  }

  const int hosts_;
  const std::string name_;
  std::optional<BadNetwork> network_;
  bool good_ = false;
};

}  // namespace braid::job
