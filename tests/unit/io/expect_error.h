#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "braid/base/error.h"

namespace braid::test {

// Expects that run() throws a braid::Error of this code whose message is one line, not long, and
// holds every one of `parts`.
template <class Run>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, const Run& run) {
  try {
    run();
    ADD_FAILURE() << "nothing was refused, expected: " << (parts.empty() ? "" : parts.front());
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(to_string(error.code()), to_string(code)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos)
          << "message: " << message << "\nmissing: " << part;
    }
  }
}

}  // namespace braid::test
