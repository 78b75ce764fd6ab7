#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace braid::app {

// Writes to standard output at once; fails with kResource when the output takes no more.
void print(std::string_view text);

// JSON as text; non-UTF-8 bytes, from a path or a name in a file, become U+FFFD.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
// Each line on standard error, behind the program's name.
void print_remarks(const std::vector<std::string>& lines);

// A whole file, or standard input. Fails with kNotFound or kResource (a folder).
std::string read_file(const std::string& path);
std::string read_stdin();

// Fails with kResource, naming `what`, if a file could not be written: a check before the work for
// that file. Leaves the file unchanged.
void require_writable(std::string_view what, const std::filesystem::path& path);

// Fails with kInvalidArgument, naming `what` and the first non-UTF-8 byte's place.
void require_utf8(std::string_view text, std::string_view what);

// This process' largest resident memory so far, without the starting program's.
double peak_rss_mb();

}  // namespace braid::app
