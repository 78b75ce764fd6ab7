#include "braid/text_io.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "braid/base/error.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid::app {
namespace {

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file)) text.append(buffer, n);
  if (std::ferror(file)) {
    fail(ErrorCode::kResource, "cannot read {}: {}", name, std::strerror(errno));
  }
  return text;
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail(ErrorCode::kResource, "cannot write to the output: {}", std::strerror(errno));
  }
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void print_remarks(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::fprintf(stderr, "braid: %s\n", line.c_str());
}

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) fail(ErrorCode::kNotFound, "cannot open {}: {}", path, std::strerror(errno));
  return read_all(file.get(), path);
}

std::string read_stdin() {
  return read_all(stdin, "standard input");
}

void require_writable(std::string_view what, const std::filesystem::path& path) {
  std::error_code ignored;
  const bool exists = std::filesystem::exists(path, ignored);
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) {
    fail(ErrorCode::kResource, "cannot write {} {}: {}", what, path.string(), std::strerror(errno));
  }
  if (!exists) std::filesystem::remove(path, ignored);
}

void require_utf8(std::string_view text, std::string_view what) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.status != Utf8Status::kValid) {
      fail(ErrorCode::kInvalidArgument, "{} is not valid UTF-8: byte 0x{:02x} at offset {}", what,
           static_cast<unsigned char>(text[at]), at);
    }
    at += c.size;
  }
}

// getrusage also counts this process before exec: a copy of the starting
// program.
double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    double kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %lf kB", &kib) == 1) return kib / 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace braid::app
