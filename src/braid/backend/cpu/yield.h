#pragma once

namespace braid::cpu {

// How often the calling thread yields in its next wait, of so many times that its policy has: not
// at all for some thousand waits after another program was seen to use its core. A yield then costs
// a slice of that program's time, milliseconds, and sleepers are woken in microseconds.
int yields_now(int policy);

// Gives the core to whoever wants it. False where another program took it for long.
bool yield_core();

}  // namespace braid::cpu
