#include "braid/server/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace braid::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int kMaxPath = 2048;
constexpr auto kUse = asio::use_awaitable;

std::chrono::nanoseconds seconds(double s) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(s));
}

std::string random_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}{:016x}", random(), random());
}

// Letters that a log line or a header can hold.
bool plain(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

// The timer that waits end by; it outlives the exchange for those who still wake it.
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

class Connection : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpConfig& config)
      : stream_(std::move(socket)),
        config_(config),
        waker_(std::make_shared<Waker>(stream_.get_executor())) {}

  // The next request; false where the connection has ended.
  asio::awaitable<bool> read() {
    parser_.emplace();
    parser_->body_limit(static_cast<uint64_t>(config_.max_body));
    parser_->header_limit(static_cast<uint32_t>(config_.max_header));
    error_code error;
    stream_.expires_after(seconds(config_.idle_seconds));
    co_await http::async_read_header(stream_, buffer_, *parser_, asio::redirect_error(kUse, error));
    if (!error) {
      stream_.expires_after(seconds(config_.read_seconds));
      if (parser_->get()[http::field::expect] == "100-continue") {
        http::response<http::empty_body> more(http::status::continue_, parser_->get().version());
        co_await http::async_write(stream_, more, asio::redirect_error(kUse, error));
      }
    }
    if (!error)
      co_await http::async_read(stream_, buffer_, *parser_, asio::redirect_error(kUse, error));
    stream_.expires_never();
    if (!error) {
      begin(parser_->release());
      co_return true;
    }
    co_await refuse(error);
    co_return false;
  }

  // A client that ends a connection, or takes too long, hears nothing; a broken request, why.
  asio::awaitable<void> refuse(error_code error) {
    int status = 400;
    if (error == http::error::end_of_stream || error == asio::error::operation_aborted ||
        error == asio::error::connection_reset || error == asio::error::eof ||
        error == http::error::partial_message || error == beast::error::timeout) {
      co_return;
    }
    if (error == http::error::body_limit) status = 413;
    if (error == http::error::header_limit) status = 431;
    begin({});
    keep_ = false;
    const std::string why =
        status == 413   ? fmt::format("the body is longer than {} bytes", config_.max_body)
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
    if (status == 401) response.set(http::field::www_authenticate, "Bearer");
    response.body() = std::move(text);
    response.prepare_payload();
    if (method() == "HEAD") response.body().clear();
    status_ = status;
    stream_.expires_after(seconds(config_.write_seconds));
    co_await http::async_write(stream_, response, kUse);
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
    co_await http::async_write_header(stream_, serializer, kUse);
    stream_.expires_never();
  }
  asio::awaitable<void> event(std::string data) override { return write("data: " + data + "\n\n"); }
  asio::awaitable<void> comment() override { return write(": wait\n\n"); }
  asio::awaitable<void> end_events() override {
    if (chunked_) co_await asio::async_write(stream_, http::make_chunk_last(), kUse);
  }

  asio::awaitable<void> wait(double s) override {
    watch();
    if (!waker_->woken && !gone_) {
      error_code error;
      waker_->timer.expires_after(seconds(s));
      co_await waker_->timer.async_wait(asio::redirect_error(kUse, error));
    }
    waker_->woken = false;
  }
  std::function<void()> waker() override {
    return [waker = waker_] { asio::post(waker->executor, [waker] { waker->wake(); }); };
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
    // What the client still sends is read for a moment, so that it gets to see the answer.
    error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    stream_.expires_after(std::chrono::seconds(2));
    char rest[4096];
    while (!error)
      co_await stream_.async_read_some(asio::buffer(rest), asio::redirect_error(kUse, error));
  }

 private:
  void begin(http::request<http::string_body> request) {
    request_ = std::move(request);
    keep_ = request_.keep_alive();
    status_ = 0;
    gone_ = watched_ = false;
    client.clear();
    note.clear();
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
      co_await asio::async_write(stream_, http::make_chunk(asio::buffer(text)), kUse);
    } else {
      co_await asio::async_write(stream_, asio::buffer(text), kUse);
    }
    stream_.expires_never();
  }

  // Sees that the client closes while nothing is read from it.
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
    // With bytes of a next request there, a close is seen when these are read.
    if (n > 0 || error == asio::error::would_block) return;
    gone_ = true;
    waker_->wake();
  }

  beast::tcp_stream stream_;
  const HttpConfig& config_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::request<http::string_body> request_;
  std::shared_ptr<Waker> waker_;
  bool keep_ = true, chunked_ = true, gone_ = false;
  bool watching_ = false;  // an operation of the socket is under way
  bool watched_ = false;   // one was, in this exchange
  int status_ = 0;
};

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpConfig& c, Handler h, Log l)
      : config(c), handler(std::move(h)), log(std::move(l)), context(c.threads), acceptor(context) {
    try {
      const auto address =
          asio::ip::make_address(config.host == "localhost" ? "127.0.0.1" : config.host);
      const tcp::endpoint endpoint(address, static_cast<uint16_t>(config.port));
      acceptor.open(endpoint.protocol());
      acceptor.set_option(asio::socket_base::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen();
    } catch (const std::exception& error) {
      fail(ErrorCode::kResource, "cannot listen at {}:{}: {}", config.host, config.port,
           error.what());
    }
    asio::co_spawn(context, accept(), asio::detached);
    for (int i = 0; i < config.threads; ++i) threads.emplace_back([this] { context.run(); });
  }
  ~Impl() {
    context.stop();
    for (std::thread& thread : threads) thread.join();
  }

  asio::awaitable<void> accept() {
    while (true) {
      error_code error;
      tcp::socket socket(asio::make_strand(context));
      co_await acceptor.async_accept(socket, asio::redirect_error(kUse, error));
      if (error == asio::error::operation_aborted || !acceptor.is_open()) co_return;
      if (error) {
        // Out of descriptors, say: others have to end first.
        asio::steady_timer timer(context, std::chrono::milliseconds(50));
        co_await timer.async_wait(asio::redirect_error(kUse, error));
        continue;
      }
      if (open >= config.max_connections) continue;  // closed at once
      socket.set_option(tcp::no_delay(true), error);
      const auto executor = socket.get_executor();
      asio::co_spawn(executor, serve(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> serve(tcp::socket socket) {
    const auto connection = std::make_shared<Connection>(std::move(socket), config);
    ++open;
    try {
      while (co_await connection->read()) {
        const auto begin = Clock::now();
        ++busy;
        try {
          co_await answer(*connection);
        } catch (...) {
          --busy;
          throw;
        }
        --busy;
        connection->end();
        const double took = std::chrono::duration<double>(Clock::now() - begin).count();
        if (log) log(*connection, connection->gone() ? 499 : connection->status(), took);
        if (!connection->keep()) break;
      }
      if (!connection->gone()) co_await connection->linger();
    } catch (const std::exception&) {
      // The client went away, or did not take its answer in time.
    }
    connection->close();
    --open;
  }

  asio::awaitable<void> answer(Connection& connection) {
    std::optional<ApiError> failed;
    try {
      if (connection.path().size() > kMaxPath) throw ApiError(414, "the path is too long");
      co_await handler(connection);
    } catch (const ApiError& error) {
      failed = error;
    } catch (const Error& error) {
      failed = ApiError(error);
    } catch (const boost::system::system_error&) {
      throw;
    } catch (const std::exception& error) {
      failed = ApiError(500, error.what());
    }
    if (!failed) co_return;
    connection.note = failed->what();
    if (!connection.begun()) {
      co_await connection.json(failed->status(), failed->json());
    } else {
      co_await connection.event(failed->json().dump());
      co_await connection.event("[DONE]");
      co_await connection.end_events();
    }
  }

  const HttpConfig config;
  const Handler handler;
  const Log log;
  asio::io_context context;
  tcp::acceptor acceptor;
  std::atomic<int> open{0};  // connections
  std::atomic<int> busy{0};  // requests
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(const HttpConfig& config, Handler handler, Log log)
    : impl_(std::make_unique<Impl>(config, std::move(handler), std::move(log))) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->acceptor.local_endpoint().port();
}

int HttpServer::busy() const {
  return impl_->busy;
}

void HttpServer::stop_accepting() {
  boost::asio::post(impl_->context, [this] {
    error_code error;
    impl_->acceptor.close(error);
  });
}

}  // namespace braid::server
