#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>

#include "braid/server/http/exchange.h"
#include "braid/server/http/http_server.h"

namespace braid::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

inline std::chrono::nanoseconds seconds(double s) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(s));
}

inline std::string random_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}{:016x}", random(), random());
}

// Letters that a log line or a header can hold.
inline bool plain(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

// The timer that ends a connection's waits.
struct Waker {
  explicit Waker(asio::any_io_executor e) : executor(e), timer(e) {}
  asio::any_io_executor executor;
  asio::steady_timer timer;
  bool woken = false;

  void wake() {
    woken = true;
    timer.cancel();
  }
};

// Where other threads wake connections, until the server's context ends.
class WakerGate {
 public:
  void wake(const std::weak_ptr<Waker>& waker) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (const auto there = waker.lock()) asio::post(there->executor, [there] { there->wake(); });
  }
  // Before the context is destroyed; from then on wake() does nothing.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  std::mutex mutex_;
  bool closed_ = false;
};

// A TCP connection: reads requests in turn, and is the current exchange.
class Connection : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpConfig& config, std::shared_ptr<WakerGate> gate)
      : stream_(std::move(socket)),
        config_(config),
        gate_(std::move(gate)),
        waker_(std::make_shared<Waker>(stream_.get_executor())) {}

  // The next request; false where the connection has ended.
  asio::awaitable<bool> read() {
    parser_.emplace();
    parser_->body_limit(static_cast<uint64_t>(config_.max_body));
    parser_->header_limit(static_cast<uint32_t>(config_.max_header));
    error_code error;
    if (buffer_.size() == 0) {  // between two requests
      stream_.expires_after(seconds(config_.idle_seconds));
      const size_t n = co_await stream_.async_read_some(
          buffer_.prepare(4096), asio::redirect_error(asio::use_awaitable, error));
      buffer_.commit(n);
      stream_.expires_never();
      if (error) co_return false;
    }
    // The stream's own time limit would close it, and the client would never hear why.
    asio::steady_timer limit(stream_.get_executor(), seconds(config_.read_seconds));
    limit.async_wait([self = shared_from_this(), turn = ++turn_](error_code aborted) {
      if (aborted || turn != self->turn_) return;
      error_code ignored;
      self->late_ = true;
      self->stream_.socket().cancel(ignored);
    });
    co_await http::async_read_header(stream_, buffer_, *parser_,
                                     asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      if (parser_->get()[http::field::expect] == "100-continue") {
        http::response<http::empty_body> more(http::status::continue_, parser_->get().version());
        co_await http::async_write(stream_, more, asio::redirect_error(asio::use_awaitable, error));
      }
    }
    if (!error)
      co_await http::async_read(stream_, buffer_, *parser_,
                                asio::redirect_error(asio::use_awaitable, error));
    ++turn_;
    if (!error) {
      begin(parser_->release());
      co_return true;
    }
    co_await refuse(error);
    co_return false;
  }

  // A client that ends a connection hears nothing; a slow or broken request, why.
  asio::awaitable<void> refuse(error_code error) {
    int status = 400;
    if (late_) {
      status = 408;
    } else if (error == http::error::end_of_stream || error == asio::error::operation_aborted ||
               error == asio::error::connection_reset || error == asio::error::eof ||
               error == http::error::partial_message) {
      co_return;
    }
    if (error == http::error::body_limit) status = 413;
    if (error == http::error::header_limit) status = 431;
    begin({});
    keep_ = false;
    const std::string why =
        status == 413 ? fmt::format("the body is longer than {} bytes", config_.max_body)
        : status == 408
            ? fmt::format("the request took longer than {} s to come", config_.read_seconds)
        : status == 431 ? fmt::format("the header is longer than {} bytes", config_.max_header)
                        : "the request is no valid HTTP: " + error.message();
    co_await json(status, ApiError(status, why).json());
  }

  std::string_view method() const override {
    const auto text = request_.method_string();
    return {text.data(), text.size()};
  }
  std::string_view path() const override {
    const auto target = request_.target();
    const std::string_view text(target.data(), target.size());
    return text.substr(0, text.find('?'));
  }
  std::string_view body() const override { return request_.body(); }
  std::string_view header(std::string_view name) const override {
    const auto value = request_[boost::string_view(name.data(), name.size())];
    return {value.data(), value.size()};
  }

  asio::awaitable<void> send(int status, std::string_view type, std::string text) override {
    http::response<http::string_body> response(static_cast<http::status>(status),
                                               request_.version());
    prepare(response, type);
    if (status == 429) response.set(http::field::retry_after, "1");
    if (status == 405) response.set(http::field::allow, allow);
    if (status == 401) response.set(http::field::www_authenticate, "Bearer");
    response.body() = std::move(text);
    response.prepare_payload();
    if (method() == "HEAD") response.body().clear();
    status_ = status;
    stream_.expires_after(seconds(config_.write_seconds));
    co_await http::async_write(stream_, response, asio::use_awaitable);
    stream_.expires_never();
  }

  asio::awaitable<void> begin_events() override {
    http::response<http::empty_body> response(http::status::ok, request_.version());
    prepare(response, "text/event-stream; charset=utf-8");
    response.set(http::field::cache_control, "no-cache");
    response.set("X-Accel-Buffering", "no");
    chunked_ = request_.version() >= 11;
    if (chunked_) {
      response.chunked(true);
    } else {
      keep_ = false;
    }
    status_ = 200;
    http::response_serializer<http::empty_body> serializer(response);
    stream_.expires_after(seconds(config_.write_seconds));
    co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
    stream_.expires_never();
  }
  asio::awaitable<void> event(const StreamEvent& event) override {
    return write((event.name.empty() ? "data: " : "event: " + event.name + "\ndata: ") +
                 event.data + "\n\n");
  }
  asio::awaitable<void> comment() override { return write(": wait\n\n"); }
  asio::awaitable<void> end_events() override {
    if (chunked_) co_await asio::async_write(stream_, http::make_chunk_last(), asio::use_awaitable);
  }

  asio::awaitable<void> wait(double s) override {
    watch();
    if (!waker_->woken && !gone_) {
      error_code error;
      waker_->timer.expires_after(seconds(s));
      co_await waker_->timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
    waker_->woken = false;
  }
  std::function<void()> waker() override {
    return [gate = gate_, waker = std::weak_ptr(waker_)] { gate->wake(waker); };
  }
  bool gone() const override { return gone_; }

  // After the handler: ends the watch over the socket.
  void end() {
    error_code error;
    if (watching_) stream_.socket().cancel(error);
  }
  bool begun() const { return status_ != 0; }
  int status() const { return status_; }
  bool keep() const { return keep_ && !gone_; }
  void close() {
    error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_both, error);
    stream_.socket().close(error);
  }
  asio::awaitable<void> linger() {
    // The client's late bytes are read for a moment: the client then sees the answer.
    error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    stream_.expires_after(std::chrono::seconds(2));
    char rest[4096];
    while (!error)
      co_await stream_.async_read_some(asio::buffer(rest),
                                       asio::redirect_error(asio::use_awaitable, error));
  }

 private:
  void begin(http::request<http::string_body> request) {
    request_ = std::move(request);
    keep_ = request_.keep_alive();
    status_ = 0;
    gone_ = watched_ = false;
    client.clear();
    note.clear();
    allow.clear();
    const std::string_view given = header("X-Request-Id");
    id = plain(given) ? std::string(given) : random_id();
  }

  template <class Response>
  void prepare(Response& response, std::string_view type) {
    response.set(http::field::server, "braid");
    response.set(http::field::content_type, boost::string_view(type.data(), type.size()));
    response.set("X-Request-Id", id);
    response.keep_alive(keep_);
  }

  asio::awaitable<void> write(std::string text) {
    stream_.expires_after(seconds(config_.write_seconds));
    if (chunked_) {
      co_await asio::async_write(stream_, http::make_chunk(asio::buffer(text)),
                                 asio::use_awaitable);
    } else {
      co_await asio::async_write(stream_, asio::buffer(text), asio::use_awaitable);
    }
    stream_.expires_never();
  }

  // Notices a close by the client while nothing is read.
  void watch() {
    if (watching_ || watched_ || gone_) return;
    watching_ = watched_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this()](error_code error) {
                                  self->watching_ = false;
                                  if (error != asio::error::operation_aborted) self->peek();
                                });
  }
  void peek() {
    char next;
    error_code error;
    stream_.socket().non_blocking(true, error);
    const size_t n =
        stream_.socket().receive(asio::buffer(&next, 1), tcp::socket::message_peek, error);
    // With bytes of a next request present, reading them reveals a close.
    if (n > 0 || error == asio::error::would_block) return;
    gone_ = true;
    waker_->wake();
  }

  beast::tcp_stream stream_;
  const HttpConfig& config_;
  const std::shared_ptr<WakerGate> gate_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::request<http::string_body> request_;
  std::shared_ptr<Waker> waker_;
  bool keep_ = true, chunked_ = true, gone_ = false;
  bool watching_ = false;  // an operation of the socket is under way
  bool watched_ = false;   // one was, in this exchange
  bool late_ = false;      // a request did not come in time
  int turn_ = 0;           // grows with each request that begins or has come
  int status_ = 0;
};

}  // namespace braid::server
