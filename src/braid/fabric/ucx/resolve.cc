#include "braid/fabric/ucx/resolve.h"

#include <netdb.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>

#include "braid/base/error.h"

namespace braid::fabric {

std::string SocketAddress::text() const {
  char text[NI_MAXHOST] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&storage), bytes, text, sizeof(text), nullptr, 0,
              NI_NUMERICHOST);
  return text;
}

bool SocketAddress::loopback() const {
  const std::string address = text();
  return address.starts_with("127.") || address == "::1";
}

int SocketAddress::port() const {
  in_port_t port = 0;  // at the same place for IPv4 and IPv6
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&port, reinterpret_cast<const char*>(&storage) + offsetof(sockaddr_in, sin_port),
              sizeof(port));
  return ntohs(port);
}

std::vector<SocketAddress> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    fail(ErrorCode::kNotFound, "host '{}' has no address: {}", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.bytes = at->ai_addrlen;
  }
  std::ranges::stable_sort(
      addresses, {}, [](const SocketAddress& a) { return a.storage.ss_family == AF_INET ? 0 : 1; });
  return addresses;
}

std::string describe(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const SocketAddress& address : addresses) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", address.text(),
                        address.loopback() ? " (loopback)" : "");
  }
  return text;
}

// UCX writes a line for each lane: "#  lane[0]:  2:tcp/eth0.0 md[1]  -> addr[0].md[1]/tcp/...".
std::string lanes_of(const std::string& description) {
  std::set<std::string> names;
  std::istringstream lines(description);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("lane[") == std::string::npos) continue;
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const size_t begin = line.find_last_of(": ", slash) + 1;
    const size_t end = line.find_first_of(" .", slash);
    const std::string name = line.substr(begin, end - begin);
    names.insert(name.ends_with("/memory") ? name.substr(0, name.size() - 7) : name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " + ") + name;
  return text.empty() ? "unknown" : text;
}

}  // namespace braid::fabric
