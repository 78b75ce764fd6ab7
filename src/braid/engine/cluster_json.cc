#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/engine/cluster_description.h"
#include "braid/io/json_object.h"
#include "braid/io/json_text.h"
#include "braid/io/text_file.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr int64_t kMostRanks = 65536;
constexpr int64_t kMost = int64_t{1} << 60;

// The fields of an object; others than the known are refused.
class Fields {
 public:
  Fields(const JsonObject& object, std::string origin, std::vector<std::string> known)
      : object_(object), origin_(std::move(origin)) {
    for (const std::string& key : object.keys()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      fail(ErrorCode::kMalformed, "{}: '{}' is no field of a cluster's description; there are {}",
           origin_, key.substr(0, 40), fmt::join(known, ", "));
    }
  }

  int64_t number(const char* key, int64_t least, int64_t most) const {
    return check(key, object_.get<int64_t>(key), least, most);
  }
  int64_t number_or(const char* key, int64_t otherwise, int64_t least, int64_t most) const {
    return check(key, object_.get_or<int64_t>(key, otherwise), least, most);
  }
  std::optional<int> optional_number(const char* key) const {
    if (!object_.contains(key)) return {};
    return static_cast<int>(number(key, 1, kMostRanks));
  }
  std::string text_or(const char* key, const char* otherwise) const {
    return object_.get_or<std::string>(key, otherwise);
  }
  [[noreturn]] void refuse(const char* key, std::string_view allowed) const {
    fail(ErrorCode::kMalformed, "{}: '{}' is {}; wanted is {}", origin_, key,
         object_.value().at(key).dump(-1, ' ', true).substr(0, 60), allowed);
  }

 private:
  int64_t check(const char* key, int64_t value, int64_t least, int64_t most) const {
    if (value >= least && value <= most) return value;
    fail(ErrorCode::kMalformed, "{}: '{}' is {}, wanted {} to {}", origin_, key, value, least,
         most);
  }
  const JsonObject& object_;
  const std::string origin_;
};

// Adjacent equal ranks are one entry with a count.
Json ranks_json(const std::vector<RankDescription>& ranks) {
  Json entries = Json::array();
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankDescription& rank = ranks[r];
    if (r > 0 && rank == ranks[r - 1]) {
      entries.back()["count"] = entries.back()["count"].get<int64_t>() + 1;
      continue;
    }
    entries.push_back({{"host", rank.host},
                       {"count", 1},
                       {"device", rank.device},
                       {"units", rank.units},
                       {"kernels", rank.kernels},
                       {"memory_bytes", rank.memory_bytes},
                       {"build", rank.build},
                       {"strategy_library", rank.strategy_library}});
  }
  return entries;
}

void read_ranks(const JsonObject& root, const std::string& origin,
                std::vector<RankDescription>& ranks) {
  const auto at = root.value().find("ranks");
  if (at == root.value().end() || !at->is_array() || at->empty()) {
    fail(ErrorCode::kMalformed, "{}: 'ranks' is {}; wanted is a list of ranks", origin,
         at == root.value().end() ? "missing"
         : at->is_array()         ? "empty"
                                  : at->type_name());
  }
  for (size_t i = 0; i < at->size(); ++i) {
    const std::string where = fmt::format("{}: ranks[{}]", origin, i);
    const JsonObject object(where, (*at)[i]);
    const Fields f(object, where,
                   {"host", "count", "device", "units", "kernels", "memory_bytes", "build",
                    "strategy_library"});
    const RankDescription rank = {.host = object.get<std::string>("host"),
                                  .device = f.text_or("device", "cpu"),
                                  .units = f.number_or("units", 1, 1, 1'000'000),
                                  .kernels = f.text_or("kernels", ""),
                                  .memory_bytes = f.number_or("memory_bytes", 0, 0, kMost),
                                  .build = f.text_or("build", ""),
                                  .strategy_library = f.text_or("strategy_library", "")};
    const int64_t count = f.number_or("count", 1, 1, kMostRanks - std::ssize(ranks));
    ranks.insert(ranks.end(), count, rank);
  }
}

SequenceParallel read_sequence(const JsonObject& object, const std::string& origin) {
  const Fields f(object, origin, {"mode", "torus", "ulysses", "ring", "apart", "step_bytes"});
  SequenceParallel sp;
  const std::string mode = f.text_or("mode", "auto");
  if (mode != "auto") sp.mode = parse_sp_mode(mode);
  sp.degrees = {f.optional_number("torus"), f.optional_number("ulysses"),
                f.optional_number("ring")};
  sp.apart = object.get_or("apart", false);
  sp.step_bytes = f.number_or("step_bytes", 0, 0, kMost);
  return sp;
}

// Shares and groups are checked against the ranks, where these become levels.
Thinning read_thinning(const JsonObject& object, const std::string& origin) {
  const Fields f(object, origin, {"keep", "groups", "importance", "drop_queries"});
  Thinning thinning{.keep = object.get<std::vector<double>>("keep"),
                    .drop_queries = object.get_or("drop_queries", false)};
  for (const int64_t ranks : object.get_or("groups", std::vector<int64_t>())) {
    if (ranks < 1 || ranks > kMostRanks) f.refuse("groups", "a list of numbers of ranks");
    thinning.groups.push_back(static_cast<int>(ranks));
  }
  try {
    thinning.importance = parse_importance(f.text_or("importance", "own"));
  } catch (const Error&) {
    f.refuse("importance", "own, probe or previous");
  }
  return thinning;
}

CacheShape read_cache(const JsonObject& object, const std::string& origin) {
  const Fields f(object, origin,
                 {"pages", "page_size", "pages_per_sequence", "kv_dtype", "activations"});
  CacheShape cache = {.pages = f.number("pages", 1, int64_t{1} << 40),
                      .page_size = f.number_or("page_size", 64, 1, 4096)};
  cache.pages_per_sequence = f.number("pages_per_sequence", 1, cache.pages);
  const auto dtype = [&](const char* key, const char* otherwise) {
    const std::optional<DType> type = parse_dtype(f.text_or(key, otherwise));
    if (!type || !is_float(*type)) f.refuse(key, "f16, bf16 or f32");
    return *type;
  };
  cache.kv_dtype = dtype("kv_dtype", "f16");
  cache.activations = dtype("activations", "f32");
  return cache;
}

Profile read_profile(const nlohmann::json& value, const std::string& origin) {
  if (value.is_string()) return load_profile(value.get<std::string>());
  return parse_profile(value.dump(), origin + ": profile");
}

void require_equal_machines(const ClusterDescription& cluster, const std::string& origin) {
  const int each = cluster.ranks_count() / cluster.machines;
  if (each * cluster.machines != cluster.ranks_count()) {
    fail(ErrorCode::kMalformed, "{}: {} ranks do not divide over {} machines", origin,
         cluster.ranks_count(), cluster.machines);
  }
  if (cluster.machines % cluster.racks != 0) {
    fail(ErrorCode::kMalformed, "{}: {} machines do not divide over {} racks", origin,
         cluster.machines, cluster.racks);
  }
}

}  // namespace

std::string to_json(const ClusterDescription& c) {
  Json root = {{"format", kFormat},
               {"ranks", ranks_json(c.ranks)},
               {"machines", c.machines},
               {"mapped", c.mapped},
               {"model", c.model},
               {"schedule", c.schedule},
               {"ep", c.ep},
               {"dp", c.dp},
               {"expert_memory", c.expert_memory},
               {"communication", c.communication},
               {"cache",
                {{"pages", c.cache.pages},
                 {"page_size", c.cache.page_size},
                 {"pages_per_sequence", c.cache.pages_per_sequence},
                 {"kv_dtype", name(c.cache.kv_dtype)},
                 {"activations", name(c.cache.activations)}}}};
  if (c.sp) {
    Json& sp = root["sequence"] = {{"mode", c.sp->mode ? to_string(*c.sp->mode) : "auto"}};
    const SpRequest& degrees = c.sp->degrees;
    if (degrees.torus) sp["torus"] = *degrees.torus;
    if (degrees.ulysses) sp["ulysses"] = *degrees.ulysses;
    if (degrees.ring) sp["ring"] = *degrees.ring;
    if (c.sp->apart) sp["apart"] = true;
    if (c.sp->step_bytes > 0) sp["step_bytes"] = c.sp->step_bytes;
  }
  if (c.thinning) {
    root["thinning"] = {{"keep", c.thinning.keep},
                        {"groups", c.thinning.groups},
                        {"importance", to_string(c.thinning.importance)},
                        {"drop_queries", c.thinning.drop_queries}};
  }
  if (c.racks > 1) root["racks"] = c.racks;
  if (c.profile) root["profile"] = Json::parse(to_json(*c.profile));
  return root.dump(2) + "\n";
}

ClusterDescription parse_cluster(std::string_view json, const std::string& origin) {
  const JsonObject root(origin, parse_json(json, origin));
  const Fields f(root, origin,
                 {"format", "ranks", "machines", "racks", "mapped", "model", "schedule", "ep", "dp",
                  "expert_memory", "communication", "cache", "sequence", "thinning", "profile"});
  f.number("format", kFormat, kFormat);
  ClusterDescription c;
  read_ranks(root, origin, c.ranks);
  c.machines = static_cast<int>(f.number_or("machines", 1, 1, c.ranks_count()));
  c.racks = static_cast<int>(f.number_or("racks", 1, 1, c.machines));
  require_equal_machines(c, origin);
  c.mapped = root.get_or("mapped", false);
  c.model = f.text_or("model", "");
  c.schedule = f.text_or("schedule", "sequential");
  c.ep = static_cast<int>(f.number_or("ep", 1, 1, c.ranks_count()));
  c.dp = static_cast<int>(f.number_or("dp", 1, 1, c.ranks_count()));
  if (c.ranks_count() % c.dp != 0) {
    fail(ErrorCode::kMalformed, "{}: 'dp' is {}, which does not divide {} ranks", origin, c.dp,
         c.ranks_count());
  }
  c.expert_memory =
      f.number_or("expert_memory", kExpertMemory, 0, std::numeric_limits<int64_t>::max());
  c.communication = root.get_or("communication", true);
  if (const auto cache = root.object("cache")) c.cache = read_cache(*cache, origin + ": cache");
  if (const auto sp = root.object("sequence")) c.sp = read_sequence(*sp, origin + ": sequence");
  if (const auto thin = root.object("thinning")) {
    c.thinning = read_thinning(*thin, origin + ": thinning");
  }
  if (root.contains("profile")) c.profile = read_profile(root.value().at("profile"), origin);
  return c;
}

ClusterDescription read_cluster(const std::string& path) {
  return parse_cluster(read_text(path), path);
}

}  // namespace braid
