#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "bindings/bindings.h"
#include "braid/engine/engine.h"

namespace braid::python {

// One request; the engine may be closed before it.
class PyStream {
 public:
  PyStream(const std::shared_ptr<Engine>& engine, AnswerRequest request,
           std::function<void()> ready);
  ~PyStream();

  // The next piece as (text, tokens), or None at the end; waits, and Ctrl-C ends the wait.
  nb::object next();
  bool ready() { return stream_->wait(0); }
  void cancel();
  nb::dict end() const;
  // All that is left: (text, tokens, prompt's log-probabilities, end).
  nb::tuple rest();

 private:
  nb::object take();
  // An engine that another thread closes meanwhile ends after `call`, here, without the lock.
  template <class F>
  void with_engine(F&& call) {
    nb::gil_scoped_release release;
    const std::shared_ptr<Engine> engine = engine_.lock();
    call();
  }

  const std::weak_ptr<Engine> engine_;
  std::optional<AnswerStream> stream_;
};

void bind_stream(nb::module_& m);

}  // namespace braid::python
