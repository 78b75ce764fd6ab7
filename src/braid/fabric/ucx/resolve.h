#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <ucs/sys/sock.h>

#include <string>
#include <vector>

namespace braid::fabric {

// An address of a host, with the port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  ucs_sock_addr_t view() const { return {reinterpret_cast<const sockaddr*>(&storage), bytes}; }
  std::string text() const;  // "10.0.0.1"
  bool loopback() const;
  int port() const;
};

// The addresses of a host name, IPv4 first. Fails with kNotFound without any.
std::vector<SocketAddress> resolve(const std::string& host, int port);
// "10.0.0.1, ::1 (loopback)"
std::string describe(const std::vector<SocketAddress>& addresses);

// The transports in UCX's description of an endpoint: "tcp/eth0", "posix + cma".
std::string lanes_of(const std::string& description);

}  // namespace braid::fabric
