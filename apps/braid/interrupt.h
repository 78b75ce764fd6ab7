#pragma once

#include <csignal>

namespace braid::app {

// Ctrl-C while this lives: asked() says so, and the work ends where it next looks. More than
// `patience` of them end the program at once. One at a time.
class Interrupt {
 public:
  explicit Interrupt(int patience = 1);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool asked() const;
  void clear();

 private:
  struct sigaction before_ {};
};

// A job that Ctrl-C ended, after it put its files in order: the program exits with 130.
struct Interrupted {};

}  // namespace braid::app
