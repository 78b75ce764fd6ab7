#include "braid/kernels/cuda/decode_choice/decode_rates.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>

#include "braid/base/error.h"
#include "braid/schedule/builtin_profiles.h"

namespace braid::cuda {
namespace {

using Json = nlohmann::json;

struct Field {
  const char* name;
  double DecodeRates::*member;
};
constexpr Field kFields[] = {
    {"ring_bytes", &DecodeRates::ring_bytes}, {"relay_seam", &DecodeRates::relay_seam},
    {"relay_bare", &DecodeRates::relay_bare}, {"launch_seam", &DecodeRates::launch_seam},
    {"panel_seam", &DecodeRates::panel_seam}, {"fused_seam", &DecodeRates::fused_seam},
    {"fused_cta", &DecodeRates::fused_cta},   {"fused_batch", &DecodeRates::fused_batch},
    {"parts_seam", &DecodeRates::parts_seam}, {"scores_sum", &DecodeRates::scores_sum},
    {"fused_wave", &DecodeRates::fused_wave}, {"scores_group", &DecodeRates::scores_group},
    {"words_seam", &DecodeRates::words_seam}, {"memory_share", &DecodeRates::memory_share},
    {"cta_stream", &DecodeRates::cta_stream}, {"stream", &DecodeRates::stream},
};

// Up to 10^exponent.
double number(const Json& json, const std::string& field, std::string_view origin,
              int exponent = 18) {
  const double x = json.is_number() ? json.get<double>() : -1;
  if (!(x >= 0 && x <= std::pow(10, exponent))) {
    fail(ErrorCode::kMalformed, "{}: {} is {}; wanted is a number from 0 to 1e{}", origin, field,
         json.is_null() ? "missing" : json.dump(-1, ' ', true).substr(0, 60), exponent);
  }
  return x;
}

// A list of as many numbers as `out` has.
template <class T>
void read_list(const Json& root, const char* field, std::span<T> out, std::string_view meaning,
               std::string_view origin) {
  const Json list = root.value(field, Json());
  if (!list.is_array() || list.size() != out.size()) {
    fail(ErrorCode::kMalformed, "{}: {}: wanted are {} numbers, for {}", origin, field, out.size(),
         meaning);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<T>(number(list[i], field, origin, std::is_integral_v<T> ? 6 : 18));
  }
}

// Words of a name, in lower case, between blanks: an H1000 is no H100.
std::string words_of(std::string_view gpu) {
  std::string words = " ";
  for (const unsigned char c : gpu) {
    words += std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : ' ';
  }
  return words + ' ';
}

}  // namespace

DecodeRates parse_decode_rates(std::string_view json, std::string_view origin) {
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) fail(ErrorCode::kMalformed, "{}: wanted is a JSON object", origin);
  for (const auto& [key, value] : root.items()) {
    const bool known = key == "device" || key == "cta_keys" || key == "clusters" ||
                       std::ranges::any_of(kFields, [&](const Field& f) { return f.name == key; });
    if (!known) {
      fail(ErrorCode::kMalformed, "{}: {} is no constant of decode steps", origin,
           Json(key).dump(-1, ' ', true));
    }
  }
  DecodeRates rates;
  for (const Field& f : kFields)
    rates.*f.member = number(root.value(f.name, Json()), f.name, origin);
  read_list(root, "cta_keys", std::span<double>(rates.cta_keys),
            "1, 2 and 4 query heads, and several tokens", origin);
  read_list(root, "clusters", std::span<int>(rates.clusters).subspan(1), "clusters of 1 to 16",
            origin);
  return rates;
}

DecodeRates absent_decode_rates(std::string_view gpu, double stream) {
  const std::string words = words_of(gpu);
  const auto files = builtin_decode_rates();
  const auto own = std::ranges::find_if(files, [&](const BuiltinProfile& p) {
    return words.find(fmt::format(" {} ", p.name)) != std::string::npos;
  });
  const auto file =
      own != files.end() ? own : std::ranges::find(files, "h100", &BuiltinProfile::name);
  DecodeRates rates = parse_decode_rates(file->json, fmt::format("decode/{}.json", file->name));
  if (own == files.end()) {
    rates.stream = stream;
    rates.unmeasured = gpu;
  }
  return rates;
}

DecodeRates decode_rates(std::string_view gpu, double stream) {
  DecodeRates rates = absent_decode_rates(gpu, stream);
  rates.stream = stream;
  return rates;
}

}  // namespace braid::cuda
