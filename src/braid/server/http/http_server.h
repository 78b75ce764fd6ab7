#pragma once

#include <functional>
#include <memory>
#include <string>

#include "braid/server/http/exchange.h"

namespace braid::server {

struct HttpConfig {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one
  int threads = 2;
  int64_t max_body = int64_t{64} << 20;  // bytes
  int max_header = 64 << 10;             // bytes
  int max_connections = 4096;
  double read_seconds = 30;   // for the whole of a request to come
  double idle_seconds = 75;   // between two requests of a connection
  double write_seconds = 30;  // for a client to take sent bytes
};

// HTTP/1.1 with keep-alive over plain TCP; TLS is a proxy's work. Every connection is a coroutine
// on a strand; each wait has a deadline.
class HttpServer {
 public:
  // Answers one request; exceptions become error objects.
  using Handler = std::function<boost::asio::awaitable<void>(Exchange& exchange)>;
  using Log = std::function<void(const Exchange& exchange, int status, double seconds)>;

  // Listens at once. Fails with kResource where the address cannot be had.
  HttpServer(const HttpConfig& config, Handler handler, Log log);
  // Closes all connections.
  ~HttpServer();

  int port() const;
  int busy() const;  // requests that are being answered
  // Takes no new connections from now on; present connections go on.
  void stop_accepting();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::server
