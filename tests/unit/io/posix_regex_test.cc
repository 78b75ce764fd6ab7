// Programs that link Braid keep the C library's regular expressions: libonig has functions of the
// same names, by which this pattern does not match.
#include <gtest/gtest.h>
#include <regex.h>

namespace braid {
namespace {

TEST(PosixRegex, IsTheCLibrarys) {
  regex_t regex;
  ASSERT_EQ(regcomp(&regex, "^a[^\n]*(li|le)[^\n]*\n$", REG_EXTENDED), 0);
  EXPECT_EQ(regexec(&regex, "a line\n", 0, nullptr, 0), 0);
  regfree(&regex);
}

}  // namespace
}  // namespace braid
