#include "braid/io/jinja/tests.h"

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/str_search.h"
#include "braid/io/jinja/table.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

// A test without arguments.
template <bool (*kHolds)(const Value&)>
bool plain(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "test", args, {});
  return kHolds(input);
}

bool is_defined(const Value& v) {
  return !v.undefined();
}
bool is_undefined(const Value& v) {
  return v.undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.get_if<bool>();
}
bool is_true(const Value& v) {
  return v.get<bool>();
}
bool is_false(const Value& v) {
  return v.get_if<bool>() && !v.get<bool>();
}
bool is_int(const Value& v) {
  return v.get_if<int64_t>();
}
bool is_float(const Value& v) {
  return v.get_if<double>();
}
bool is_string(const Value& v) {
  return v.str();
}
bool is_mapping(const Value& v) {
  return v.dict();
}
bool is_escaped(const Value& v) {
  return v.str() && v.str()->markup;
}
bool is_iterable(const Value& v) {
  return iterable(v) || (v.instance() && v.instance()->type_name() == "LoopContext");
}
// Values with a length and an index.
bool is_sequence(const Value& v) {
  return length(v) && !(v.sequence() && !v.sequence()->indexable());
}
bool is_callable(const Value& v) {
  return v.undefined() || (v.instance() && v.instance()->callable());
}

bool divisible(Runtime& runtime, const Value& input, const Value& by, int64_t remainder) {
  const Value left = binary(runtime, Arithmetic::mod, input, by);
  return equal(runtime, left, remainder);
}

bool odd(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "odd", args, {});
  return divisible(runtime, input, int64_t{2}, 1);
}

bool even(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "even", args, {});
  return divisible(runtime, input, int64_t{2}, 0);
}

bool divisibleby(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "divisibleby", args, {"num"}, 1);
  return divisible(runtime, input, bound[0], 0);
}

template <bool (*kWanted)(char32_t)>
bool cased(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "test", args, {});
  return all_cased(to_str(runtime, input), kWanted);
}

template <Comparison kOp>
bool comparison(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "test", args, {"other"}, 1);
  return compare(runtime, kOp, input, bound[0]);
}

bool sameas(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "sameas", args, {"other"}, 1);
  return input.same(bound[0]);
}

template <bool kFilter>
bool known(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "test", args, {});
  if (!input.str()) return false;
  return kFilter ? find_filter(input.str()->text) != nullptr
                 : find_test(input.str()->text) != nullptr;
}

constexpr TestEntry kTests[] = {{"!=", comparison<Comparison::ne>},
                                {"<", comparison<Comparison::lt>},
                                {"<=", comparison<Comparison::le>},
                                {"==", comparison<Comparison::eq>},
                                {">", comparison<Comparison::gt>},
                                {">=", comparison<Comparison::ge>},
                                {"boolean", plain<is_boolean>},
                                {"callable", plain<is_callable>},
                                {"defined", plain<is_defined>},
                                {"divisibleby", divisibleby},
                                {"eq", comparison<Comparison::eq>},
                                {"equalto", comparison<Comparison::eq>},
                                {"escaped", plain<is_escaped>},
                                {"even", even},
                                {"false", plain<is_false>},
                                {"filter", known<true>},
                                {"float", plain<is_float>},
                                {"ge", comparison<Comparison::ge>},
                                {"greaterthan", comparison<Comparison::gt>},
                                {"gt", comparison<Comparison::gt>},
                                {"in", comparison<Comparison::in>},
                                {"integer", plain<is_int>},
                                {"iterable", plain<is_iterable>},
                                {"le", comparison<Comparison::le>},
                                {"lessthan", comparison<Comparison::lt>},
                                {"lower", cased<utf8::is_lower>},
                                {"lt", comparison<Comparison::lt>},
                                {"mapping", plain<is_mapping>},
                                {"ne", comparison<Comparison::ne>},
                                {"none", plain<is_none>},
                                {"number", plain<is_number>},
                                {"odd", odd},
                                {"sameas", sameas},
                                {"sequence", plain<is_sequence>},
                                {"string", plain<is_string>},
                                {"test", known<false>},
                                {"true", plain<is_true>},
                                {"undefined", plain<is_undefined>},
                                {"upper", cased<utf8::is_upper>}};

}  // namespace

Test find_test(std::string_view name) {
  const TestEntry* entry = find_entry(kTests, name);
  return entry ? entry->test : nullptr;
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& input, const Args& args) {
  const Test test = find_test(name);
  if (!test) runtime.fail_as(ErrorCode::kUnsupported, fmt::format("no test named '{}'", name));
  return test(runtime, input, args);
}

}  // namespace braid::jinja
