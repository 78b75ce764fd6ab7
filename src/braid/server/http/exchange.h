#pragma once

#include <utility>  // Boost 1.74's awaitable.hpp needs it before

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "braid/server/schema/fields.h"

namespace braid::server {

// A server-sent event; a name is optional.
struct StreamEvent {
  std::string data;  // a single line
  std::string name = {};
};

// A request of a connection, with functions to answer. All functions run on the connection's
// strand.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual std::string_view method() const = 0;
  virtual std::string_view path() const = 0;  // without the query
  virtual std::string_view body() const = 0;
  virtual std::string_view header(std::string_view name) const = 0;  // empty where absent
  std::string id;      // X-Request-Id, the client's or one made here
  std::string client;  // its API key's name; empty without keys
  std::string allow;   // the path's methods, for an answer with 405
  std::string note;    // for the log: tokens, the reason of an error

  // The whole answer.
  boost::asio::awaitable<void> json(int status, const Json& value) {
    return send(status, "application/json",
                value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  virtual boost::asio::awaitable<void> send(int status, std::string_view type,
                                            std::string text) = 0;

  // Server-sent events: begin, any number of events and comments, end.
  virtual boost::asio::awaitable<void> begin_events() = 0;
  virtual boost::asio::awaitable<void> event(const StreamEvent& event) = 0;
  virtual boost::asio::awaitable<void> comment() = 0;
  virtual boost::asio::awaitable<void> end_events() = 0;

  // Waits for wake(), for `seconds`, or until the client is gone.
  virtual boost::asio::awaitable<void> wait(double seconds) = 0;
  // Ends the wait at hand or the next one; any thread, also after the exchange and its server have
  // ended.
  virtual std::function<void()> waker() = 0;
  // The client closed the connection; seen while waiting, though nothing is written.
  virtual bool gone() const = 0;
};

}  // namespace braid::server
