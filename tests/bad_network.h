#pragma once

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// A slow network that delays and loses: a thread of the test carries each Ethernet frame from host
// to host, for kernels without netem.
namespace braid::job {

struct Weather {
  std::chrono::microseconds most_delay{0};  // of a frame, drawn evenly from 0
  double loss = 0;                          // share of frames
  double bytes_per_second = 1e9;            // of each pair of hosts, each way
  uint32_t seed = 1;
};

class BadNetwork {
 public:
  // Makes an interface for each name, which the caller moves to a host; good() says whether it
  // worked.
  BadNetwork(const std::vector<std::string>& names, const Weather& weather)
      : weather_(weather), random_(weather.seed) {
    for (const std::string& name : names) {
      ifreq request{};
      request.ifr_flags = IFF_TAP | IFF_NO_PI;
      name.copy(request.ifr_name, IFNAMSIZ - 1);
      const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
      if (fd >= 0) ports_.push_back(fd);
      good_ = good_ && fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0;
    }
    if (good_) thread_ = std::thread([this] { carry(); });
  }
  ~BadNetwork() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    for (int fd : ports_) close(fd);
  }
  BadNetwork(const BadNetwork&) = delete;
  BadNetwork& operator=(const BadNetwork&) = delete;

  bool good() const { return good_; }
  int64_t carried() const { return carried_; }
  int64_t lost() const { return lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Frame {
    size_t to = 0;  // port
    std::vector<char> bytes;
  };

  void carry() {
    std::vector<pollfd> waits;
    for (int fd : ports_) waits.push_back({fd, POLLIN, 0});
    while (!stop_) {
      timespec timeout{0, 5'000'000};
      if (!under_way_.empty()) {
        const auto left = std::chrono::nanoseconds(under_way_.begin()->first - Clock::now());
        timeout.tv_nsec = std::clamp<int64_t>(left.count(), 0, timeout.tv_nsec);
      }
      ppoll(waits.data(), waits.size(), &timeout, nullptr);
      for (size_t p = 0; p < ports_.size(); ++p) take(p);
      while (!under_way_.empty() && under_way_.begin()->first <= Clock::now()) {
        const Frame& frame = under_way_.begin()->second;
        // A full port drops the frame, as a switch does.
        if (write(ports_[frame.to], frame.bytes.data(), frame.bytes.size()) >= 0) ++carried_;
        under_way_.erase(under_way_.begin());
      }
    }
  }

  void take(size_t from) {
    std::array<char, 2048> bytes{};
    while (true) {
      const ssize_t n = read(ports_[from], bytes.data(), bytes.size());
      if (n < 12) return;
      const std::string to(bytes.data(), 6), sender(bytes.data() + 6, 6);
      port_of_[sender] = from;
      const auto known = port_of_.find(to);
      for (size_t p = 0; p < ports_.size(); ++p) {
        if (p == from || (known != port_of_.end() && known->second != p)) continue;
        if (std::uniform_real_distribution<>(0, 1)(random_) < weather_.loss) {
          ++lost_;
          continue;
        }
        const auto delay = std::chrono::microseconds(
            std::uniform_int_distribution<int64_t>(0, weather_.most_delay.count())(random_));
        // Frames of a link stay in order.
        Clock::time_point& last = last_[{from, p}];
        const std::chrono::duration<double> taken(static_cast<double>(n) /
                                                  weather_.bytes_per_second);
        last = std::max(last, Clock::now() + delay) +
               std::chrono::duration_cast<Clock::duration>(taken);
        under_way_.emplace(last, Frame{p, {bytes.data(), bytes.data() + n}});
      }
    }
  }

  const Weather weather_;
  std::mt19937 random_;
  std::vector<int> ports_;  // [hosts] file descriptors
  bool good_ = true;
  std::map<std::string, size_t> port_of_;  // by Ethernet address
  std::map<std::pair<size_t, size_t>, Clock::time_point> last_;
  std::multimap<Clock::time_point, Frame> under_way_;  // by time of arrival
  std::atomic<int64_t> carried_{0}, lost_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace braid::job
