#include "braid/server/load/load_client.h"

#include <fmt/format.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>

#include "braid/base/clock.h"
#include "braid/base/error.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kUse = asio::use_awaitable;
constexpr size_t kMostDetail = 300;  // bytes of an error answer

std::string kind_of(const error_code& error) {
  return error == beast::error::timeout ? "timeout" : "cut off";
}

template <class Request>
void set_fields(Request& request, const LoadConfig& config) {
  request.set(http::field::host, fmt::format("{}:{}", config.host, config.port));
  request.set(http::field::user_agent, "braid-bench");
  if (!config.key.empty()) request.set(http::field::authorization, "Bearer " + config.key);
  request.keep_alive(true);
}

}  // namespace

asio::awaitable<std::unique_ptr<LoadClient::Connection>> LoadClient::connect(error_code& error) {
  auto connection = std::make_unique<Connection>(executor_);
  tcp::resolver resolver(executor_);
  const auto found = co_await resolver.async_resolve(config_.host, std::to_string(config_.port),
                                                     asio::redirect_error(kUse, error));
  if (error) co_return connection;
  connection->stream.expires_after(std::chrono::seconds(30));
  co_await connection->stream.async_connect(found, asio::redirect_error(kUse, error));
  if (!error) connection->stream.socket().set_option(tcp::no_delay(true), error);
  co_return connection;
}

asio::awaitable<LoadResult> LoadClient::post(std::string body) {
  http::request<http::string_body> request(
      http::verb::post, config_.base + (config_.chat ? "/chat/completions" : "/completions"), 11);
  set_fields(request, config_);
  request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();

  LoadResult result{.begin = steady_seconds()};
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(config_.timeout));
  std::unique_ptr<Connection> connection;
  std::optional<http::response_parser<http::buffer_body>> parser;
  error_code error;
  while (true) {
    const bool reused = !idle_.empty();
    if (reused) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      connection = co_await connect(error);
      if (error) {
        result.error = "connect";
        break;
      }
    }
    connection->stream.expires_at(deadline);
    parser.emplace();
    parser->body_limit(uint64_t{1} << 40);  // 1.74 takes none for 0
    co_await http::async_write(connection->stream, request, asio::redirect_error(kUse, error));
    if (!error) {
      co_await http::async_read_header(connection->stream, connection->buffer, *parser,
                                       asio::redirect_error(kUse, error));
    }
    // The server may have closed a connection that waited; nobody has read the request then.
    if (error && reused && error != beast::error::timeout) {
      error = {};
      continue;
    }
    if (error) result.error = kind_of(error);
    break;
  }
  if (!result.error.empty()) {
    result.detail = error.message();
    result.end = steady_seconds();
    co_return result;
  }

  const int status = parser->get().result_int();
  const auto type = parser->get()[http::field::content_type];
  const bool events = status == 200 && type.starts_with("text/event-stream");
  StreamCheck check(config_.chat);
  EventReader reader;
  std::string other;  // text outside a stream of events
  char bytes[16384];
  while (!parser->is_done()) {
    parser->get().body().data = bytes;
    parser->get().body().size = sizeof bytes;
    co_await http::async_read_some(connection->stream, connection->buffer, *parser,
                                   asio::redirect_error(kUse, error));
    if (error == http::error::need_buffer) error = {};
    const std::string_view some(bytes, sizeof bytes - parser->get().body().size);
    const double now = steady_seconds();
    if (events) {
      reader.push(some, [&](std::string_view data) { check.event(data, now); });
    } else if (other.size() < kMostDetail) {
      other += some.substr(0, kMostDetail - other.size());
    }
    if (error) break;
  }
  result.end = steady_seconds();
  check.end();
  result.facts = check.facts();
  if (error) {
    result.error = kind_of(error);
    result.detail = error.message();
  } else if (status != 200) {
    result.error = fmt::format("status {}", status);
    result.detail = other;
  } else if (!events) {
    result.error = "shape";
    result.detail = fmt::format("the answer's type is {}, wanted text/event-stream",
                                std::string_view(type.data(), type.size()));
  } else if (!result.facts.error.empty()) {
    result.error = "error event";
    result.detail = result.facts.error;
  } else if (!result.facts.fault.empty()) {
    result.error = "shape";
    result.detail = result.facts.fault;
  }
  if (!error && parser->keep_alive()) {
    connection->stream.expires_never();
    idle_.push_back(std::move(connection));
  }
  co_return result;
}

asio::awaitable<std::string> LoadClient::get(std::string path) {
  error_code error;
  const auto connection = co_await connect(error);
  http::request<http::empty_body> request(http::verb::get, path, 11);
  set_fields(request, config_);
  http::response<http::string_body> response;
  if (!error)
    co_await http::async_write(connection->stream, request, asio::redirect_error(kUse, error));
  if (!error) {
    co_await http::async_read(connection->stream, connection->buffer, response,
                              asio::redirect_error(kUse, error));
  }
  if (error) {
    fail(ErrorCode::kNotFound, "http://{}:{}{} does not answer: {}", config_.host, config_.port,
         path, error.message());
  }
  if (response.result_int() != 200) {
    fail(ErrorCode::kNotFound, "http://{}:{}{} answers with status {}: {}", config_.host,
         config_.port, path, response.result_int(), response.body().substr(0, kMostDetail));
  }
  co_return response.body();
}

}  // namespace braid::server
