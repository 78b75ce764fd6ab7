#include <gtest/gtest.h>

#include "braid/io/jinja/template.h"

// A template inside a model file is not trusted: whatever it asks for ends in an error, soon, and
// before the memory is taken.
namespace braid::jinja {
namespace {

using nlohmann::ordered_json;

void expect_refused(const std::string& source, ErrorCode code = ErrorCode::kResource,
                    const ordered_json& variables = ordered_json::object(),
                    const Limits& limits = {.steps = 2'000'000,
                                            .heap_bytes = 64 << 20,
                                            .text_bytes = 16 << 20,
                                            .depth = 300}) {
  SCOPED_TRACE(source.substr(0, 200));
  try {
    const std::string output = Template(source).render(variables, {.limits = limits, .now = {}});
    ADD_FAILURE() << "not refused; " << output.size() << " bytes: " << output.substr(0, 100);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

std::string repeat(const std::string& text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Limits, StringsThatGrow) {
  expect_refused("{{ 'a' * 10**9 }}");
  expect_refused("{{ 10**9 * 'ab' }}");
  expect_refused("{{ 'ab' * 9223372036854775807 }}");
  expect_refused(
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}");
  expect_refused("{{ 'x'.center(10**12) }}");
  expect_refused("{{ 'x'.ljust(10**12, 'é') }}");
  expect_refused("{{ 'x'.zfill(10**15) }}");
  expect_refused("{{ 'x' | center(10**15) }}");
  expect_refused("{{ 'x' | indent(10**15, true) }}");
  expect_refused("{{ '%1000000000000d' % 1 }}");
  expect_refused("{{ '%.1000000000000d' % 1 }}");
  expect_refused("{{ '{:>1000000000000}'.format(1) }}");
  expect_refused("{{ [[1]] | tojson(indent=10**12) }}");
  expect_refused("{{ ('a' * 10000).replace('', 'b' * 10000) }}");
  expect_refused("{{ ('b' * 10000).join('a' * 10000) }}");
  expect_refused("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}");
}

TEST(Limits, ListsThatGrow) {
  expect_refused("{{ [1] * 10**10 }}");
  expect_refused("{{ [[]] * 9223372036854775807 }}");
  expect_refused("{{ range(10**12) }}");
  expect_refused("{{ range(-9223372036854775807, 9223372036854775807) | list }}");
  expect_refused("{{ range(0, 9223372036854775807, 3) }}");
  expect_refused("{{ [1] | batch(10**12, 0) | list }}");
  expect_refused(
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}"
      "{% set ns.l = ns.l + ns.l %}{% endfor %}");
}

TEST(Limits, Loops) {
  const std::string inner = repeat("{% for i in range(100000) %}", 5) + repeat("{% endfor %}", 5);
  expect_refused(inner);
  expect_refused("{% for a in range(100000) %}{% set x = range(100000) | sum %}{% endfor %}");
  expect_refused("{{ range(100000) | map('string') | unique | list }}");
}

TEST(Limits, Recursion) {
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_refused(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}");
  expect_refused("{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}");
  const std::string nest =
      "{% set ns = namespace(a=1) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor %}";
  expect_refused(nest + "{{ ns.a }}");
  expect_refused(nest + "{{ ns.a | tojson }}");
  expect_refused(nest + "{% set b = [ns.a][0] %}{{ [ns.a] < [[ns.a]] }}");
  expect_refused("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}");
  expect_refused(
      "{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}"
      "{% set ns.g = ns.g | select %}{% endfor %}{{ ns.g | list }}");
}

TEST(Limits, SharedValuesThatPrintExponentially) {
  const std::string twice =
      "{% set ns = namespace(a=1) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% endfor %}";
  expect_refused(twice + "{{ ns.a }}");
  expect_refused(twice + "{{ ns.a | tojson }}");
}

TEST(Limits, NestedSource) {
  const auto code = ErrorCode::kUnsupported;
  expect_refused("{{ " + repeat("(", 10000) + "1" + repeat(")", 10000) + " }}", code);
  expect_refused("{{ " + repeat("[", 10000) + repeat("]", 10000) + " }}", code);
  expect_refused("{{ " + repeat("-", 10000) + "1 }}", code);
  expect_refused("{{ " + repeat("not ", 10000) + "1 }}", code);
  expect_refused("{{ 1" + repeat(" + 1", 10000) + " }}", code);
  expect_refused("{{ x" + repeat(".y", 10000) + " }}", code);
  expect_refused("{{ x" + repeat("|e", 10000) + " }}", code);
  expect_refused("{{ 1" + repeat(" if 1 else 1", 10000) + " }}", code);
  expect_refused(repeat("{% if 1 %}", 10000) + repeat("{% endif %}", 10000), code);
  expect_refused("{% set " + repeat("(", 10000) + "a" + repeat(")", 10000) + " = 1 %}", code);
  expect_refused(std::string(5 << 20, 'x'));
}

TEST(Limits, NumbersBeyond64Bits) {
  const auto code = ErrorCode::kInvalidArgument;
  for (const char* source :
       {"{{ 9 ** 9 ** 9 }}", "{{ 10 ** 1000000000 }}", "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ 4611686018427387904 * 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ (-9223372036854775807 - 1) | abs }}",
        "{{ '9223372036854775808' | int }}", "{{ 1e30 | int }}",
        "{{ -(-9223372036854775807 - 1) }}", "{{ 9223372036854775807 | round(-1) }}"}) {
    expect_refused(source, code);
  }
  expect_refused("{{ 9223372036854775808 }}", ErrorCode::kMalformed);
  expect_refused("", code, {{"x", 18446744073709551615ull}});
}

TEST(Limits, DeepData) {
  ordered_json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = ordered_json::array({std::move(deep)});
  expect_refused("{{ x }}", ErrorCode::kResource, {{"x", deep}});
}

TEST(Limits, TheSandboxShowsNoInternals) {
  const auto code = ErrorCode::kInvalidArgument;
  expect_refused("{{ ''.__class__.__mro__ }}", code);
  expect_refused("{{ raise_exception.__globals__['os'] }}", code);
  expect_refused("{{ [].append(1) }}", code);
  expect_refused("{{ {}.update({}) }}", code);
  expect_refused("{{ namespace(__init__=1) }}", code);
  expect_refused("{% set ns = namespace() %}{% set ns._x = 1 %}", code);
  for (const char* tag : {"include", "import", "extends", "from"}) {
    expect_refused(std::string("{% ") + tag + " '/etc/passwd' %}", ErrorCode::kUnsupported);
  }
}

// The limits leave room for what real conversations need.
TEST(Limits, LongConversationsRender) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", repeat("text ", 400)}});
  }
  const Template chatml(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content | length "
      "%}"
      "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>' + '\\n' }}"
      "{% endfor %}{{ ns.n }}");
  const ordered_json variables = {{"messages", messages}};
  const std::string text = chatml.render(variables);
  EXPECT_TRUE(text.ends_with("<|im_end|>\n4000000"));
}

}  // namespace
}  // namespace braid::jinja
