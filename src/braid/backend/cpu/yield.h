#pragma once

namespace braid::cpu {

// Number of yields in the calling thread's next wait, out of its policy's: none for some thousand
// waits after another program used the thread's core. A yield then costs a slice of the other
// program's time, milliseconds, while sleepers are woken in microseconds.
int yields_now(int policy);

// Gives the core to any other program. False if a program kept the core for long.
bool yield_core();

}  // namespace braid::cpu
