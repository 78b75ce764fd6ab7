#include "braid/schedule/profile.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "braid/base/error.h"
#include "braid/schedule/builtin_profiles.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kFormat = 1;
constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxRates = 1000;
constexpr size_t kMaxPoints = 100;
constexpr double kMost = 1e18;

// Reads the fields of a JSON object, and at the end refuses unread fields.
class Reader {
 public:
  Reader(const Json& json, std::string origin, std::string path)
      : json_(json), origin_(std::move(origin)), path_(std::move(path)) {
    if (!json.is_object()) refuse("", "an object");
  }

  bool has(const std::string& key) const { return json_.contains(key); }
  double number(const std::string& key, double least, double most = kMost) {
    const Json& value = at(key, "a number");
    const double x = value.is_number() ? value.get<double>() : NAN;
    if (!(x >= least && x <= most)) refuse(key, fmt::format("a number from {} to {}", least, most));
    return x;
  }
  double positive(const std::string& key) { return number(key, std::numeric_limits<float>::min()); }
  std::string text(const std::string& key) {
    const Json& value = at(key, "a text");
    if (!value.is_string()) refuse(key, "a text");
    return value.get<std::string>();
  }
  bool flag(const std::string& key) {
    const Json& value = at(key, "true or false");
    if (!value.is_boolean()) refuse(key, "true or false");
    return value.get<bool>();
  }
  const Json& array(const std::string& key, size_t most) {
    const Json& value = at(key, "an array");
    if (!value.is_array() || value.size() > most) {
      refuse(key, fmt::format("an array of at most {}", most));
    }
    return value;
  }
  Reader object(const std::string& key) { return {at(key, "an object"), origin_, field(key)}; }
  Reader object(const Json& item, const std::string& key, size_t index) const {
    return {item, origin_, fmt::format("{}[{}]", field(key), index)};
  }

  void done() const {
    for (const auto& [key, value] : json_.items()) {
      if (std::ranges::find(read_, key) == read_.end()) {
        const std::string shown =
            Json(key).dump(-1, ' ', true);  // in quotes; nothing breaks a line
        fail(ErrorCode::kMalformed, "{}: {} is no field of a profile", origin_,
             field(shown.substr(1, shown.size() - 2)));
      }
    }
  }
  [[noreturn]] void refuse(const std::string& key, std::string_view allowed) const {
    const bool there = key.empty() || json_.contains(key);
    std::string seen =
        there ? (key.empty() ? json_ : json_.at(key)).dump(-1, ' ', true) : "missing";
    if (seen.size() > 60) seen = seen.substr(0, 60) + "...";
    fail(ErrorCode::kMalformed, "{}: {} is {}; wanted is {}", origin_, field(key), seen, allowed);
  }

 private:
  std::string field(const std::string& key) const {
    if (key.empty()) return path_.empty() ? "the profile" : path_;
    return path_.empty() ? key : path_ + "." + key;
  }
  const Json& at(const std::string& key, std::string_view allowed) {
    read_.push_back(key);
    if (!json_.contains(key)) refuse(key, allowed);
    return json_.at(key);
  }

  const Json& json_;
  const std::string origin_;
  const std::string path_;
  std::vector<std::string> read_;
};

LinkProfile read_link(Reader reader) {
  LinkProfile link = {reader.positive("bytes_per_second"), reader.number("latency_seconds", 0, 10),
                      reader.flag("shared_port")};
  reader.done();
  return link;
}

Rate read_rate(Reader reader) {
  Rate rate{.kind = reader.text("kind"), .dtype = reader.text("dtype")};
  const std::string unit = reader.text("unit");
  if (unit != "flops" && unit != "bytes") reader.refuse("unit", "\"flops\" or \"bytes\"");
  rate.unit = unit == "flops" ? Rate::Unit::flops : Rate::Unit::bytes;
  rate.includes_memory = reader.flag("includes_memory");
  if (reader.has("ranks")) rate.ranks = static_cast<int>(reader.number("ranks", 1, 1e6));
  if (reader.has("head_dim")) {
    rate.head_dim = static_cast<int64_t>(reader.number("head_dim", 0, 1e6));
  }
  const Json& points = reader.array("points", kMaxPoints);
  if (points.empty()) reader.refuse("points", "at least one point");
  for (const Json& point : points) {
    const auto is_point = [&] {
      if (!point.is_array() || point.size() != 2) return false;
      for (const Json& x : point) {
        if (!x.is_number() || !(x.get<double>() > 0) || x.get<double>() > kMost) return false;
      }
      return rate.points.empty() || point[0].get<double>() > rate.points.back().m;
    };
    if (!is_point()) reader.refuse("points", "pairs [m, per second] above 0, m ascending");
    rate.points.push_back({point[0].get<double>(), point[1].get<double>()});
  }
  reader.done();
  return rate;
}

// Four digits say all that a measurement knows.
double rounded(double x) {
  return std::strtod(fmt::format("{:.4g}", x).c_str(), nullptr);
}

Json link_json(const LinkProfile& link) {
  return {{"bytes_per_second", rounded(link.bytes_per_second)},
          {"latency_seconds", rounded(link.latency_seconds)},
          {"shared_port", link.shared_port}};
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kNotFound, "cannot open the profile {}", path.string());
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  if (file.bad()) fail(ErrorCode::kNotFound, "cannot read the profile {}", path.string());
  return text;
}

// A field of the object before it, with a line for each rate.
std::string table_of(std::string_view field, const std::vector<Rate>& rates) {
  std::string text = fmt::format(",\n  \"{}\": [", field);
  for (const Rate& rate : rates) {
    Json points = Json::array();
    for (const Rate::Point& point : rate.points) {
      points.push_back({rounded(point.m), rounded(point.per_second)});
    }
    const Json line = {{"kind", rate.kind},
                       {"dtype", rate.dtype},
                       {"unit", rate.unit == Rate::Unit::flops ? "flops" : "bytes"},
                       {"includes_memory", rate.includes_memory},
                       {"ranks", rate.ranks},
                       {"head_dim", rate.head_dim},
                       {"points", points}};
    text += (&rate == rates.data() ? "\n    " : ",\n    ") + line.dump();
  }
  return text + "\n  ]";
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

}  // namespace

double Rate::at(double m) const {
  const auto after = std::ranges::lower_bound(points, m, {}, &Point::m);
  if (after == points.begin()) return points.front().per_second;
  if (after == points.end()) return points.back().per_second;
  const Point &a = *(after - 1), &b = *after;
  const double t = std::log(m / a.m) / std::log(b.m / a.m);
  return a.per_second * std::pow(b.per_second / a.per_second, t);
}

Profile Profile::under_load() const {
  Profile loaded = *this;
  loaded.loaded_rates.clear();
  for (const Rate& rate : loaded_rates) {
    std::erase_if(loaded.rates, [&](const Rate& r) {
      return std::tie(r.kind, r.dtype, r.ranks, r.head_dim) ==
             std::tie(rate.kind, rate.dtype, rate.ranks, rate.head_dim);
    });
    loaded.rates.push_back(rate);
  }
  return loaded;
}

const Rate* Profile::find(std::string_view kind, std::string_view dtype, int ranks,
                          int64_t head_dim) const {
  const auto fit = [&](const Rate& rate) {
    return std::tuple(rate.dtype == dtype, rate.head_dim, rate.ranks);
  };
  const Rate* best = nullptr;
  for (const Rate& rate : rates) {
    if (rate.kind != kind || rate.ranks > ranks) continue;
    if (rate.dtype != dtype && !rate.dtype.empty()) continue;
    if (rate.head_dim != head_dim && rate.head_dim != 0) continue;
    if (best == nullptr || fit(rate) > fit(*best)) best = &rate;
  }
  return best;
}

Profile parse_profile(std::string_view json, const std::string& origin) {
  if (json.size() > kMaxBytes) {
    fail(ErrorCode::kMalformed, "{}: a profile of more than {} bytes", origin, kMaxBytes);
  }
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    std::ranges::replace_if(
        what, [](char c) { return c < ' '; }, ' ');
    fail(ErrorCode::kMalformed, "{}: is no valid JSON: {}", origin, what.substr(0, 160));
  }
  Reader reader(root, origin, "");
  if (reader.number("format", 0) != kFormat) reader.refuse("format", fmt::format("{}", kFormat));
  Profile p;
  p.name = reader.text("name");
  p.device = reader.text("device");
  p.units = reader.number("units", 1, 1e6);
  p.shared_units = reader.flag("shared_units");
  if (reader.has("activations")) {
    const auto activations = parse_dtype(reader.text("activations"));
    if (activations != DType::f32 && activations != DType::bf16) {
      reader.refuse("activations", "\"f32\" or \"bf16\"");
    }
    p.activations = *activations;
  }
  Reader streams = reader.object("stream_units");
  for (Stream stream : kStreams) {
    p.stream_units[stream] = streams.number(std::string(to_string(stream)), 1, 1e6);
  }
  streams.done();
  p.launch_seconds = reader.number("launch_seconds", 0, 10);
  p.step_seconds = reader.number("step_seconds", 0, 10);
  p.memory_bytes_per_second = reader.positive("memory_bytes_per_second");
  p.total_memory_bytes_per_second =
      reader.number("total_memory_bytes_per_second", p.memory_bytes_per_second);
  p.unit_bytes_per_second = reader.positive("unit_bytes_per_second");
  p.collective_seconds = reader.number("collective_seconds", 0, 10);
  p.emulated_message_seconds = reader.number("emulated_message_seconds", 0, 10);
  if (reader.has("collective_units")) {
    p.collective_units = reader.number("collective_units", 0, p.units);
  }
  if (reader.has("pull_seconds")) p.pull_seconds = reader.number("pull_seconds", 0, 10);
  if (reader.has("product_tiles")) p.product_tiles = reader.number("product_tiles", 1, 1e3);
  Reader links = reader.object("links");
  p.machine_link = read_link(links.object("machine"));
  p.cluster_link = read_link(links.object("cluster"));
  if (links.has("rack")) p.rack_link = read_link(links.object("rack"));
  links.done();
  const auto read_rates = [&](const char* field, std::vector<Rate>& to) {
    const Json& rates = reader.array(field, kMaxRates);
    for (size_t i = 0; i < rates.size(); ++i) {
      to.push_back(read_rate(reader.object(rates[i], field, i)));
    }
  };
  read_rates("rates", p.rates);
  if (reader.has("loaded_rates")) read_rates("loaded_rates", p.loaded_rates);
  reader.done();
  return p;
}

std::string to_json(const Profile& p) {
  Json streams;
  for (Stream stream : kStreams) {
    streams[std::string(to_string(stream))] = p.stream_units[stream];
  }
  Json links = {{"machine", link_json(p.machine_link)}, {"cluster", link_json(p.cluster_link)}};
  if (p.rack_link) links["rack"] = link_json(*p.rack_link);
  const Json head = {
      {"format", kFormat},
      {"name", p.name},
      {"device", p.device},
      {"units", p.units},
      {"shared_units", p.shared_units},
      {"activations", name(p.activations)},
      {"stream_units", streams},
      {"launch_seconds", rounded(p.launch_seconds)},
      {"step_seconds", rounded(p.step_seconds)},
      {"memory_bytes_per_second", rounded(p.memory_bytes_per_second)},
      {"total_memory_bytes_per_second", rounded(p.total_memory_bytes_per_second)},
      {"unit_bytes_per_second", rounded(p.unit_bytes_per_second)},
      {"collective_seconds", rounded(p.collective_seconds)},
      {"emulated_message_seconds", rounded(p.emulated_message_seconds)},
      {"pull_seconds", rounded(p.pull_seconds)},
      {"collective_units", p.collective_units},
      {"product_tiles", p.product_tiles},
      {"links", links},
  };
  std::string text = head.dump(2);
  text.resize(text.size() - 2);
  text += table_of("rates", p.rates);
  if (!p.loaded_rates.empty()) text += table_of("loaded_rates", p.loaded_rates);
  return text + "\n}\n";
}

std::filesystem::path profile_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "braid" / "profiles";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "braid" / "profiles";
  }
  return {};
}

std::string cpu_profile_name(int threads) {
  return fmt::format("cpu-{}", threads);
}

std::vector<std::string_view> builtin_profile_names() {
  std::vector<std::string_view> names;
  for (const BuiltinProfile& profile : builtin_profiles()) names.push_back(profile.name);
  return names;
}

std::optional<Profile> find_profile(const std::string& name) {
  std::error_code ignored;
  if (is_path(name)) {
    if (!std::filesystem::exists(name, ignored)) return std::nullopt;
    return parse_profile(read_file(name), name);
  }
  const std::filesystem::path folder = profile_cache_folder();
  const std::filesystem::path cached = folder / (name + ".json");
  if (!folder.empty() && std::filesystem::exists(cached, ignored)) {
    return parse_profile(read_file(cached), cached.string());
  }
  for (const BuiltinProfile& profile : builtin_profiles()) {
    if (profile.name == name) return parse_profile(profile.json, fmt::format("profile {}", name));
  }
  return std::nullopt;
}

Profile load_profile(const std::string& name) {
  if (std::optional<Profile> profile = find_profile(name)) return *std::move(profile);
  if (is_path(name)) fail(ErrorCode::kNotFound, "cannot open the profile {}", name);
  const std::string folder = profile_cache_folder().string();
  fail(ErrorCode::kNotFound, "no profile '{}'{}, and none such comes with Braid (they are: {})",
       name, folder.empty() ? "" : " in " + folder, fmt::join(builtin_profile_names(), ", "));
}

void save_profile(const Profile& profile, const std::filesystem::path& path) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << to_json(profile);
  file.close();
  if (!file) {
    const int cause = errno;
    fail(ErrorCode::kResource, "cannot write the profile {}: {}", path.string(),
         error ? error.message() : std::strerror(cause));
  }
}

}  // namespace braid
