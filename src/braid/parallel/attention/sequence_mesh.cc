#include "braid/parallel/attention/sequence_mesh.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"ring", "ulysses", "usp", "tas", "torus"};

// The pinned degrees, and the rest of the product by the rule.
SpDegrees degrees_of(SpMode mode, const Topology& topology, int64_t q_heads,
                     const SpRequest& request) {
  const int P = topology.ranks();
  const int groups = static_cast<int>(std::gcd<int64_t>(P, q_heads));
  switch (mode) {
    case SpMode::ring:
      return {request.torus.value_or(1), request.ulysses.value_or(1), request.ring.value_or(P)};
    case SpMode::ulysses:
      return {request.torus.value_or(1), request.ulysses.value_or(P), request.ring.value_or(1)};
    case SpMode::usp:
    case SpMode::tas: {
      const int torus = request.torus.value_or(1);
      int ulysses = groups;
      if (request.ulysses) {
        ulysses = *request.ulysses;
      } else if (request.ring) {
        ulysses = P / *request.ring;
      }
      return {torus, ulysses, request.ring.value_or(P / ulysses)};
    }
    case SpMode::torus: {
      int head_groups = groups;
      if (request.ring) {
        head_groups = P / *request.ring;
      } else if (request.torus && request.ulysses) {
        head_groups = *request.torus * *request.ulysses;
      }
      int torus = std::gcd(topology.machines, head_groups);
      if (request.torus) {
        torus = *request.torus;
      } else if (request.ulysses) {
        torus = head_groups / *request.ulysses;
      }
      const int ulysses =
          request.ulysses.value_or(torus > 0 ? std::max(head_groups / torus, 1) : 1);
      const int used = torus * ulysses;
      return {torus, ulysses, request.ring.value_or(used > 0 ? P / used : 1)};
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(SpMode mode) {
  return kNames.at(static_cast<size_t>(mode));
}

SpMode parse_sp_mode(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<SpMode>(i);
  }
  fail(ErrorCode::kInvalidArgument, "sequence parallelism '{}': there are {}, and auto by itself",
       name, fmt::join(kNames, ", "));
}

std::string to_string(const SpDegrees& degrees) {
  return fmt::format("torus {} x ulysses {} x ring {}", degrees.torus, degrees.ulysses,
                     degrees.ring);
}

int SequenceMesh::rank(int t, int u, int r) const {
  int rank = 0;
  for (const Mesh::Axis& axis : mesh.axes()) {
    rank = rank * axis.size + (axis.name == "torus" ? t : axis.name == "ulysses" ? u : r);
  }
  return rank;
}

std::vector<int> SequenceMesh::ring_sources(int rank) const {
  const std::vector<int> ring = mesh.group(rank, "ring");
  const int R = degrees.ring, at = r(rank);
  const auto machine = [&](int i) { return topology.machine_of(ring[i]); };
  int each = 1;  // ring ranks of a machine
  while (each < R && machine(each) == machine(0)) ++each;
  bool even = R % each == 0;
  for (int i = each; even && i < R; ++i) {
    even = (machine(i) == machine(i - 1)) == (i % each != 0);
  }
  if (!even) each = R;
  std::vector<int> sources;
  for (int step = 0; step < R; ++step) {
    const int source = (at / each + step / each) * each + (at + step) % each;
    sources.push_back(ring[source % R]);
  }
  return sources;
}

std::vector<std::vector<SequenceMesh::RingStep>> SequenceMesh::ring_steps() const {
  const int R = degrees.ring;
  std::vector<std::vector<RingStep>> steps(ranks(), std::vector<RingStep>(R));
  std::map<std::array<int, 3>, RingStep> fetched;  // by reader's machine, source, head group
  std::vector<std::vector<int>> sources;
  for (int x = 0; x < ranks(); ++x) sources.push_back(ring_sources(x));
  for (int i = 0; i < R; ++i) {
    for (int x = 0; x < ranks(); ++x) {
      const int source = sources[x][i];
      RingStep& step = steps[x][i];
      step = {.source = source, .from = source};
      if (topology.link(x, source) != LinkClass::cluster) continue;
      const auto [it, first] =
          fetched.try_emplace({topology.machine_of(x), source, head_group(x)},
                              RingStep{.source = source, .from = x, .fetched = i});
      if (!first) step = it->second;
    }
  }
  return steps;
}

SequenceMesh sequence_mesh(SpMode mode, const Topology& topology, int64_t q_heads,
                           const SpRequest& request) {
  for (const std::optional<int>& degree : {request.torus, request.ulysses, request.ring}) {
    if (!degree || (*degree >= 1 && *degree <= topology.ranks())) continue;
    fail(ErrorCode::kInvalidArgument, "{} attention: a degree of {} on {} ranks; wanted is 1 to {}",
         to_string(mode), *degree, sizes_of(topology), topology.ranks());
  }
  const SpDegrees degrees = degrees_of(mode, topology, q_heads, request);
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kInvalidArgument, "{} attention, {}, on {} ranks and {} query heads: {}",
         to_string(mode), to_string(degrees), sizes_of(topology), q_heads, why);
  };
  if (degrees.torus < 1 || degrees.ulysses < 1 || degrees.ring < 1) {
    refuse("every degree is at least 1");
  }
  if (int64_t{degrees.torus} * degrees.ulysses * degrees.ring != topology.ranks()) {
    refuse(fmt::format("the degrees make up {} ranks, there are {}",
                       int64_t{degrees.torus} * degrees.ulysses * degrees.ring, topology.ranks()));
  }
  if (degrees.head_groups() > q_heads) {
    refuse(fmt::format("{} head groups, one for each torus and ulysses rank, and only {} heads",
                       degrees.head_groups(), q_heads));
  }
  if (mode != SpMode::torus && degrees.torus > 1) refuse("only torus attention has a torus axis");
  if (mode == SpMode::ring && degrees.ulysses > 1) refuse("ring attention has no ulysses axis");
  if (mode == SpMode::ulysses && degrees.ring > 1) refuse("ulysses attention has no ring axis");
  const Mesh::Axis torus{"torus", degrees.torus}, ulysses{"ulysses", degrees.ulysses},
      ring{"ring", degrees.ring};
  Mesh mesh = mode == SpMode::usp ? Mesh({ring, ulysses, torus}) : Mesh({torus, ulysses, ring});
  return {mode, degrees, std::move(mesh), topology};
}

std::vector<SequenceMesh> sequence_meshes(SpMode mode, const Topology& topology, int64_t q_heads,
                                          const SpRequest& request) {
  const auto takes = [](const std::optional<int>& pinned, int degree) {
    return !pinned || *pinned == degree;
  };
  std::vector<SequenceMesh> meshes;
  const int P = topology.ranks();
  for (int t = 1; t <= P; ++t) {
    for (int u = 1; t * u <= P; ++u) {
      const int r = P / (t * u);
      if (t * u * r != P || !takes(request.torus, t) || !takes(request.ulysses, u) ||
          !takes(request.ring, r)) {
        continue;
      }
      try {
        meshes.push_back(
            sequence_mesh(mode, topology, q_heads, {.torus = t, .ulysses = u, .ring = r}));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
      }
    }
  }
  return meshes;
}

}  // namespace braid
