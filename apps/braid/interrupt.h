#pragma once

#include <csignal>

namespace braid::app {

// Catches Ctrl-C while the object lives: asked() reports Ctrl-C, and the work ends at its next
// look. More than `patience` presses end the program at once. One Interrupt at a time.
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

// A job ended by Ctrl-C, after its files were put in order: the program exits with 130.
struct Interrupted {};

}  // namespace braid::app
