#include "braid/schedule/mode_bound.h"

#include <algorithm>
#include <vector>

#include "braid/parallel/attention/traffic.h"

namespace braid {
namespace {

// A rank's bytes over a class of links.
struct PortBytes {
  double in = 0, out = 0;
  double keys = 0;     // of `in`
  double results = 0;  // part of `out`: own results, each over all keys
};

}  // namespace

double mode_bound(const SequenceAttention& a, const SequenceMesh& mesh, double compute,
                  const PerLink<LinkProfile>& links) {
  using What = AttentionRows::What;
  const Topology& topology = mesh.topology;
  const size_t P = mesh.ranks();
  PerLink<std::vector<PortBytes>> ports;  // [classes][ranks]
  for (auto& ranks : ports) ranks.resize(P);
  for (const AttentionRows& move : attention_rows(a, mesh)) {
    auto& ranks = ports[topology.link(move.from, move.to)];
    PortBytes& from = ranks[move.from];
    PortBytes& to = ranks[move.to];
    const auto bytes = static_cast<double>(move.bytes);
    from.out += bytes;
    to.in += bytes;
    if (move.what == What::kv) to.keys += bytes;
    if (move.what == What::o || move.what == What::joint_o) from.results += bytes;
  }
  double least = compute;
  const auto seconds = [&](LinkClass link, double bytes) {
    return bytes > 0 ? bytes / links[link].bytes_per_second : 0;
  };
  const auto latency = [&](LinkClass link, double bytes) {
    return bytes > 0 ? links[link].latency_seconds : 0;
  };
  for (const LinkClass link : {LinkClass::machine, LinkClass::cluster}) {
    const size_t sharers = links[link].shared_port ? topology.devices : 1;
    for (size_t first = 0; first < P; first += sharers) {
      double in = 0, out = 0;
      for (size_t x = first; x < first + sharers; ++x) {
        in += ports[link][x].in;
        out += ports[link][x].out;
      }
      for (const double bytes : {in, out}) {
        least = std::max(least, seconds(link, bytes) + latency(link, bytes));
      }
    }
  }
  if (a.masked()) return least - compute;
  // A head and sequence needs only its own keys: the last comes in late, the first leaves early.
  for (size_t x = 0; x < P; ++x) {
    const Range q =
        even_part(a.q_heads, mesh.degrees.head_groups(), mesh.head_group(static_cast<int>(x)));
    const int64_t hkv = (q.end - 1) / a.group() + 1 - q.begin / a.group();
    const auto key_parts = static_cast<double>(a.batch * hkv);
    const auto result_parts = static_cast<double>(a.batch * q.size());
    for (const LinkClass in : {LinkClass::machine, LinkClass::cluster}) {
      for (const LinkClass out : {LinkClass::machine, LinkClass::cluster}) {
        const double keys = ports[in][x].keys;
        const double results = ports[out][x].results;
        if (keys == 0 || results == 0) continue;
        const double come = seconds(in, keys), leave = seconds(out, results);
        least = std::max(least, std::max(come + leave / result_parts, come / key_parts + leave) +
                                    latency(in, keys) + latency(out, results));
      }
    }
  }
  return least - compute;
}

}  // namespace braid
