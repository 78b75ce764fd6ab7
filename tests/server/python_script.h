#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace braid::server {

struct ScriptResult {
  int status = -1;
  std::string output;
};

// Runs a script of tests/server by the Python that BRAID_TEST_PYTHON names, else by python3. Status
// 77: what the script needs is not there.
inline ScriptResult run_script(const std::string& name, const std::string& arguments) {
  const char* python = std::getenv("BRAID_TEST_PYTHON");
  const std::string command =
      fmt::format("timeout 120 {} -B {}/server/{} {} 2>&1", python == nullptr ? "python3" : python,
                  BRAID_TEST_DATA, name, arguments);
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  ScriptResult result;
  for (char part[4096]; const size_t n = std::fread(part, 1, sizeof part, pipe);)
    result.output.append(part, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

}  // namespace braid::server
