#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/parallel/topology.h"
#include "braid/program/stream.h"
#include "braid/tensor/dtype.h"

namespace braid {

// Speed for a kind of op, alone on the compute stream, as a function of `m`: the first input's
// rows; for attention the mean number of queries per key.
struct Rate {
  enum class Unit : uint8_t { flops, bytes };
  struct Point {
    double m = 1;
    double per_second = 0;
    bool operator==(const Point&) const = default;
  };
  std::string kind;   // of op
  std::string dtype;  // of the weight or the KV cache; empty: any
  Unit unit = Unit::flops;
  // Measured with operands as cold as in a step: then the rate includes memory's cost. Otherwise
  // the slower of rate and memory counts.
  bool includes_memory = false;
  std::vector<Point> points;  // m ascends
  int ranks = 1;              // least group, for a collective that computes
  int64_t head_dim = 0;       // of attention; 0: any
  bool operator==(const Rate&) const = default;

  // Between two points on the straight line of the logarithms; beyond, the nearest point's rate.
  double at(double m) const;
};

struct LinkProfile {
  double bytes_per_second = 0;  // one way, per rank
  double latency_seconds = 0;
  bool shared_port = false;  // a machine's ranks share a port; between racks: a rack's
  bool operator==(const LinkProfile&) const = default;
};

// Rates of a device and its links: the constants of the cost model. Measured on this machine by
// `braid calibrate`, or given (profiles/). docs/simulator.md describes the file.
struct Profile {
  std::string name;
  std::string device;              // for people
  double units = 1;                // a GPU's SMs; a CPU's cores
  bool shared_units = false;       // the ranks of a machine share units and memory, as on CPUs
  DType activations = DType::f32;  // dtype between kernels: f32, bf16 on GPUs
  // Units for a kernel of each stream.
  PerStream<double> stream_units = {1, 1, 1};
  double launch_seconds = 0;                 // for each launch
  double step_seconds = 0;                   // for each step: to start and join streams
  double memory_bytes_per_second = 0;        // for a kernel of the compute stream
  double total_memory_bytes_per_second = 0;  // all kernels together
  double unit_bytes_per_second = 0;          // a collective's bytes per unit, sums included
  double collective_seconds = 0;             // for each collective, beyond link latencies
  // The same for each awaited message on emulated links: threads sleep there.
  double emulated_message_seconds = 0;
  // Of a pull, beyond link latencies: a GPU's stream asks a thread of the host for the copies, and
  // waits for their end.
  double pull_seconds = 0;
  // Units that a collective takes from computation beside it, in CTAs and in power; 0: the units
  // that move its data.
  double collective_units = 0;
  // In how many parts a product's results are sent as they are made; 1: once all are.
  double product_tiles = 8;
  LinkProfile machine_link;
  LinkProfile cluster_link;
  // Between racks, beside a rank's port to other machines: with shared_port a rack's ranks share an
  // uplink. None: as cluster_link alone.
  std::optional<LinkProfile> rack_link;
  std::vector<Rate> rates;
  // Of a device that has computed for a second or more, whose clocks have fallen.
  std::vector<Rate> loaded_rates;
  bool operator==(const Profile&) const = default;

  // The same device under load: its loaded rates stand in place of rates for the same ops.
  Profile under_load() const;
  // The best fitting rate: of the kind and dtype, otherwise of the kind and any dtype; then of the
  // head dim, then with the largest `ranks` up to the given; null: none.
  const Rate* find(std::string_view kind, std::string_view dtype, int ranks = 1,
                   int64_t head_dim = 0) const;
};

// JSON and back; numbers are written with four digits. Parsing fails with kMalformed: `origin`, the
// field, the value, and the allowed range.
Profile parse_profile(std::string_view json, const std::string& origin);
std::string to_json(const Profile& profile);

// Folder of measured profiles: $XDG_CACHE_HOME/braid/profiles, or ~/.cache/braid/profiles; empty
// without both variables.
std::filesystem::path profile_cache_folder();
// "cpu-2": the name of the profile from `braid calibrate --threads 2`.
std::string cpu_profile_name(int threads);

// By path (a name with a '/' or ending in .json), otherwise by name: from the cache folder, then
// among Braid's own. Fails with kNotFound, listing the names, or as parse_profile.
Profile load_profile(const std::string& name_or_path);
// The same; nothing without such a profile.
std::optional<Profile> find_profile(const std::string& name_or_path);
std::vector<std::string_view> builtin_profile_names();

// Writes to_json, creating the folder. Fails with kResource, naming the path and the cause.
void save_profile(const Profile& profile, const std::filesystem::path& path);

}  // namespace braid
