#include "braid/server/http/http_server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "braid/server/http/connection.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int kMaxPath = 2048;
constexpr auto kUse = asio::use_awaitable;

// Counts a request for its lifetime.
class Busy {
 public:
  explicit Busy(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Busy() { --count_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<int>& count_;
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
    gate->close();  // answers of the engine still come
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
    const auto connection = std::make_shared<Connection>(std::move(socket), config, gate);
    ++open;
    try {
      while (co_await connection->read()) {
        const auto begin = Clock::now();
        const Busy request(busy);  // until its log line is written
        co_await answer(*connection);
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
      const StreamEvent error{failed->json().dump()}, done{"[DONE]"};
      co_await connection.event(error);
      co_await connection.event(done);
      co_await connection.end_events();
    }
  }

  const HttpConfig config;
  const Handler handler;
  const Log log;
  const std::shared_ptr<WakerGate> gate = std::make_shared<WakerGate>();
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
