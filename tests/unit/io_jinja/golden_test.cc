#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "braid/io/jinja/chat_template.h"

// Outputs against those of Python's jinja2, which tools/make_template_goldens.py wrote.
namespace braid {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kFolder = std::filesystem::path(BRAID_TEST_DATA) / "golden/templates";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The goldens were made at Friday, 26 July 2024, 13:05:09.
jinja::RenderOptions options() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 13;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 5;
  now.tm_yday = 207;
  return {.limits = {}, .now = now};
}

TEST(TemplateGoldens, ChatTemplatesRenderAsInPython) {
  const auto data = ordered_json::parse(read(kFolder / "chats.json"));
  size_t files = 0;
  std::string last;
  for (const auto& golden : data["cases"]) {
    const std::string file = golden["file"];
    const std::string name = golden["messages"];
    SCOPED_TRACE(file + ", " + name + (golden["tools"] ? ", tools" : ""));
    files += file != last;
    last = file;
    ordered_json tokens = data["tokens"];
    ChatInput input;
    input.messages = data["messages"][name];
    if (golden["tools"]) input.tools = data["tools"];
    input.variables = golden["more"];
    input.add_generation_prompt =
        !input.messages.empty() && input.messages.back()["role"] != "assistant";
    const ChatTemplate chat(read(kFolder / file), tokens);
    if (golden.contains("output")) {
      EXPECT_EQ(chat.render(input, options()), golden["output"].get<std::string>());
      continue;
    }
    const std::string error = golden["error"];
    try {
      ADD_FAILURE() << "Python fails with " << error << ", we give "
                    << chat.render(input, options());
    } catch (const Error& e) {
      // A TemplateError is raise_exception's, whose message must pass through as it is.
      const std::string own = "TemplateError: ";
      if (error.starts_with(own)) {
        EXPECT_EQ(e.what(), error.substr(own.size()));
      }
    }
  }
  EXPECT_GE(files, 14u);
}

class Tables : public testing::TestWithParam<const char*> {};

TEST_P(Tables, RenderAsInPython) {
  const auto data = ordered_json::parse(read(kFolder / GetParam()));
  size_t cases = 0;
  size_t beyond_64_bits = 0;
  for (const auto& golden : data["cases"]) {
    const std::string source = golden[0];
    SCOPED_TRACE(source);
    ++cases;
    std::optional<std::string> output;
    std::string error;
    try {
      output = jinja::Template(source).render(data["variables"], options());
    } catch (const Error& e) {
      error = e.what();
    }
    if (error.find("does not fit in 64 bits") != std::string::npos) {
      ++beyond_64_bits;
    } else if (golden[1].is_null()) {
      EXPECT_FALSE(output.has_value()) << "Python fails, we give " << *output;
    } else if (output) {
      EXPECT_EQ(*output, golden[1].get<std::string>());
    } else {
      ADD_FAILURE() << error << "\nPython gives " << golden[1];
    }
  }
  EXPECT_GT(cases, 50u);
  EXPECT_LE(beyond_64_bits, cases / 100);
}

INSTANTIATE_TEST_SUITE_P(TemplateGoldens, Tables, testing::Values("snippets.json", "random.json"),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).stem().string();
                         });

}  // namespace
}  // namespace braid
