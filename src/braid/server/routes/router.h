#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "braid/server/http/exchange.h"
#include "braid/server/service.h"

namespace braid::server {

struct ApiKey {
  std::string name;  // its name in logs and shares
  std::string value;
};

// One key a line, "name: key" or a key alone; empty lines and lines that begin with # are passed
// over. Fails with kMalformed on a key that occurs twice or holds a space, naming the line.
std::vector<ApiKey> read_api_keys(const std::string& path);

// The server's phase, for health checks.
enum class Phase { loading, ready, draining };

// Sends each request to its endpoint: 401 without a required key, 404, 405, 415, and 503 without a
// service.
class Router {
 public:
  Router(std::vector<ApiKey> keys, std::string version)
      : keys_(std::move(keys)), version_(std::move(version)) {}

  // The service outlives the router's use. Requests before get 503.
  void serve(Service& service) {
    service_ = &service;
    phase_ = Phase::ready;
  }
  void drain() { phase_ = Phase::draining; }

  boost::asio::awaitable<void> handle(Exchange& exchange);

 private:
  void authorize(Exchange& exchange) const;
  boost::asio::awaitable<void> health(Exchange& exchange, bool ready);

  const std::vector<ApiKey> keys_;
  const std::string version_;
  std::atomic<Service*> service_{nullptr};
  std::atomic<Phase> phase_{Phase::loading};
};

}  // namespace braid::server
