#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/io/jinja/template.h"

namespace braid::jinja {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(const std::string& source, ErrorCode code,
                     const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) {
  try {
    const std::string output = Template(source).render(variables);
    ADD_FAILURE() << source << " gives " << output;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << source << ": " << error.what();
    return error.what();
  }
  return {};
}

TEST(Errors, SyntaxErrorsNameTheLine) {
  const auto code = ErrorCode::kMalformed;
  EXPECT_EQ(
      error_of("a\n\n{% if x %}\ntext", code),
      "chat template line 4: unexpected end of template, expected 'elif' or 'else' or 'endif'");
  EXPECT_EQ(error_of("{{ a }}\n{% nosuch %}", code), "chat template line 2: unknown tag 'nosuch'");
  EXPECT_EQ(error_of("{{ 1 +\n * }}", code), "chat template line 2: unexpected '*'");
  EXPECT_EQ(error_of("\n{# never closed", code),
            "chat template line 2: missing end of comment tag");
  EXPECT_EQ(error_of("{{ (1] }}", code), "chat template line 1: unexpected ']', expected ')'");
  EXPECT_EQ(error_of("{{ a ? b }}", code), "chat template line 1: unexpected char '?'");
  EXPECT_THAT(error_of("{{ 'abc }}", code), HasSubstr("a string without end"));
  EXPECT_THAT(error_of("{{ '\\ud800' }}", code), HasSubstr("\\ud800 in a string is no character"));
  EXPECT_THAT(error_of("{{ '\xFF' }}", code), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error_of("{% endfor %}", code), HasSubstr("unknown tag 'endfor'"));
}

TEST(Errors, UnsupportedTagsAreNamed) {
  EXPECT_EQ(error_of("x\n{% include 'a' %}", ErrorCode::kUnsupported),
            "chat template line 2: the tag 'include' is not supported");
}

TEST(Errors, RunTimeErrorsNameTheLine) {
  const auto code = ErrorCode::kInvalidArgument;
  EXPECT_EQ(error_of("\n\n{{ x.y }}", code), "chat template line 3: 'x' is undefined");
  EXPECT_EQ(error_of("{{ m.a.b }}", code, {{"m", {{"k", 1}}}}),
            "chat template line 1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ l[5].a }}", code, {{"l", {1, 2}}}),
            "chat template line 1: list object has no element 5");
  EXPECT_THAT(error_of("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}", code),
              StartsWith("chat template line 2: "));
  EXPECT_THAT(error_of("{% macro m() %}\nx\n{% endmacro %}\n{{ m() +\n1 }}", code),
              StartsWith("chat template line 4: "));
  EXPECT_THAT(error_of("{{ x }}", code, {{"x", "\xC3"}}),
              HasSubstr("x: the text is not valid UTF-8"));
}

TEST(Errors, UnknownFiltersAndTestsAreNamed) {
  EXPECT_EQ(error_of("{{ 1 | nosuch }}", ErrorCode::kUnsupported),
            "chat template line 1: no filter named 'nosuch'");
  EXPECT_EQ(error_of("{{ 1 is nosuch }}", ErrorCode::kUnsupported),
            "chat template line 1: no test named 'nosuch'");
}

TEST(Errors, RaiseExceptionPassesItsMessage) {
  EXPECT_EQ(error_of("\n{{ raise_exception('Roles must alternate: ' ~ 3) }}",
                     ErrorCode::kInvalidArgument),
            "Roles must alternate: 3");
}

TEST(Errors, AFailedRenderingLeavesTheTemplateUsable) {
  const Template t("{{ x.y }}");
  EXPECT_THROW(t.render(nlohmann::ordered_json::object()), Error);
  const nlohmann::ordered_json variables = {{"x", {{"y", 1}}}};
  EXPECT_EQ(t.render(variables), "1");
}

}  // namespace
}  // namespace braid::jinja
