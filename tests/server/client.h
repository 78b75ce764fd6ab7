#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace braid::server {

using Json = nlohmann::ordered_json;

struct Reply {
  int status = 0;
  std::string head;  // status line and header fields
  std::string body;  // chunks joined

  Json json() const { return Json::parse(body); }
  std::string error() const { return json().at("error").at("message").get<std::string>(); }
  // The data of each server-sent event.
  std::vector<std::string> events() const;
};

// A plain TCP connection to a server on this machine: sends bytes as they are and reads HTTP. Each
// wait ends after a minute, with an exception.
class Client {
 public:
  explicit Client(int port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes);
  void half_close();            // nothing more is sent
  Reply read();                 // the next whole reply
  void wait_for(size_t bytes);  // until so many bytes are there to read, or the connection ends
  bool ended();                 // waits until the server closes; false after a minute

  Reply get(std::string_view path, std::string_view fields = "");
  Reply post(std::string_view path, std::string_view body,
             std::string_view fields = "Content-Type: application/json\r\n");

 private:
  bool more();  // reads once into the buffer

  int socket_ = -1;
  std::string buffer_;
};

}  // namespace braid::server
