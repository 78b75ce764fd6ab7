#pragma once

#include <utility>  // Boost 1.74's awaitable.hpp needs it before

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <string>
#include <vector>

#include "braid/server/load/load_config.h"
#include "braid/server/load/stream_check.h"

namespace braid::server {

// Result of a request. Times are seconds of the steady clock.
struct LoadResult {
  std::string error;   // its kind: "connect", "timeout", "cut off", "status 429", "error event",
                       // "shape"; empty: the answer is whole and has OpenAI's shape
  std::string detail;  // the error's text
  double begin = 0, end = 0;
  StreamFacts facts;
};

// Sends requests to a server over connections that are kept and used again.
class LoadClient {
 public:
  // `config` outlives the client.
  LoadClient(boost::asio::any_io_executor executor, const LoadConfig& config)
      : executor_(std::move(executor)), config_(config) {}

  // POSTs a body to the endpoint and reads its stream to the end. Never throws on what a server
  // does.
  boost::asio::awaitable<LoadResult> post(std::string body);
  // The body of GET `path`. Fails with kNotFound for any status but 200.
  boost::asio::awaitable<std::string> get(std::string path);

 private:
  struct Connection {
    explicit Connection(const boost::asio::any_io_executor& executor) : stream(executor) {}
    boost::beast::tcp_stream stream;
    boost::beast::flat_buffer buffer;
  };

  boost::asio::awaitable<std::unique_ptr<Connection>> connect(boost::system::error_code& error);

  boost::asio::any_io_executor executor_;
  const LoadConfig& config_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace braid::server
