#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace braid::app {

// Writes to standard output at once; fails with kResource when the output takes no more.
void print(std::string_view text);

// JSON as text; bytes that are not UTF-8, of a path or a name out of a file, become U+FFFD.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
// Each line on standard error, behind the program's name.
void print_remarks(const std::vector<std::string>& lines);

// The whole of a file, or of standard input. Fails with kNotFound or kResource (a folder).
std::string read_file(const std::string& path);
std::string read_stdin();

// Fails with kResource, naming `what`, where a file could not be written: before the work whose
// result it is to hold. Leaves the file as it is.
void require_writable(std::string_view what, const std::filesystem::path& path);

// Fails with kInvalidArgument, naming `what` and the place of the first byte that is not UTF-8.
void require_utf8(std::string_view text, std::string_view what);

// Largest resident memory of this process so far, without that of the program that started it.
double peak_rss_mb();

}  // namespace braid::app
