#include "server/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace braid::server {

std::vector<std::string> Reply::events() const {
  std::vector<std::string> all;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) throw std::runtime_error("an event without an end");
    std::string event = body.substr(at, end - at);
    if (event.starts_with("event: ")) event.erase(0, event.find('\n') + 1);
    if (event.starts_with("data: ")) all.push_back(event.substr(6));
    at = end + 2;
  }
  return all;
}

Client::Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const timeval minute{60, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("cannot connect");
  }
}

Client::~Client() {
  if (socket_ >= 0) ::close(socket_);
}

void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has closed: what it said is read next
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void Client::half_close() {
  ::shutdown(socket_, SHUT_WR);
}

bool Client::more() {
  char bytes[65536];
  ssize_t n = 0;
  do {
    n = ::recv(socket_, bytes, sizeof bytes, 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno != ECONNRESET) {
    throw std::runtime_error(fmt::format("nothing came for a minute: {}", std::strerror(errno)));
  }
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

void Client::wait_for(size_t bytes) {
  while (buffer_.size() < bytes && more()) {
  }
}

bool Client::ended() {
  try {
    while (more()) {
    }
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

Reply Client::read() {
  Reply reply;
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) throw std::runtime_error("the connection ended before a reply: " + buffer_);
  }
  reply.head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  reply.status = std::stoi(reply.head.substr(9, 3));
  std::string lower = reply.head;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower.find("transfer-encoding: chunked") != std::string::npos) {
    while (true) {
      size_t line;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!more()) throw std::runtime_error("the connection ended within a chunk");
      }
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!more()) throw std::runtime_error("the connection ended within a chunk");
      }
      reply.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) return reply;
    }
  }
  const size_t field = lower.find("content-length: ");
  const size_t length = field == std::string::npos ? 0 : std::stoul(lower.substr(field + 16));
  while (buffer_.size() < length) {
    if (!more()) throw std::runtime_error("the connection ended within a body");
  }
  reply.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return reply;
}

Reply Client::get(std::string_view path, std::string_view fields) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, fields));
  return read();
}

Reply Client::post(std::string_view path, std::string_view body, std::string_view fields) {
  send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", path, fields,
                   body.size(), body));
  return read();
}

}  // namespace braid::server
