#pragma once

#include <string>

namespace braid {

// The linker's mark of the program or library with this function, in hexadecimal: equal for equal
// files. Empty where the linker left none.
std::string build_id();

}  // namespace braid
