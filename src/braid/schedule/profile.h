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

// How fast a kind of op runs, alone on the compute stream, as a function of `m`: rows of its first
// input; for attention the mean number of queries that meet each key.
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
  // Measured with its operands where a step finds them, so that what memory costs is in it already;
  // else the slower of this and the memory counts.
  bool includes_memory = false;
  std::vector<Point> points;  // m ascends
  int ranks = 1;              // of a collective that computes, at least
  bool operator==(const Rate&) const = default;

  // Between two points on the straight line of the logarithms; beyond them as at the nearest.
  double at(double m) const;
};

struct LinkProfile {
  double bytes_per_second = 0;  // one way, of one rank
  double latency_seconds = 0;
  bool shared_port = false;  // the ranks of a machine share its port
  bool operator==(const LinkProfile&) const = default;
};

// What a device and its links can do: the constants of the cost model. Measured on this machine by
// `braid calibrate`, or given (profiles/). docs/simulator.md describes the file.
struct Profile {
  std::string name;
  std::string device;              // for people
  double units = 1;                // SMs of a GPU; cores of a CPU
  bool shared_units = false;       // the ranks of a machine share units and memory, as on CPUs
  DType activations = DType::f32;  // what its kernels pass on: f32, bf16 on GPUs
  // Units that a kernel of each stream can have.
  std::array<double, kNumStreams> stream_units = {1, 1, 1};
  double launch_seconds = 0;                 // of each launch, whatever it does
  double step_seconds = 0;                   // of each step: to start the streams and to join them
  double memory_bytes_per_second = 0;        // what a kernel of the compute stream reaches
  double total_memory_bytes_per_second = 0;  // what all kernels together do
  double unit_bytes_per_second = 0;          // what a unit moves of a collective, its sums included
  double collective_seconds = 0;             // of each collective, beyond its links' latencies
  // The same for each message that is waited for where links are emulated: threads sleep there.
  double emulated_message_seconds = 0;
  // Units that a collective keeps from what computes beside it, in CTAs and in power; 0: those that
  // move its data.
  double collective_units = 0;
  // In how many parts a product's results are sent as they are made; 1: once all are.
  double product_tiles = 8;
  LinkProfile machine_link;
  LinkProfile cluster_link;
  std::vector<Rate> rates;
  bool operator==(const Profile&) const = default;

  // The rate that fits best: of the kind and dtype, else of the kind and any, and then of as many
  // ranks as do not pass these; null: none.
  const Rate* find(std::string_view kind, std::string_view dtype, int ranks = 1) const;
};

// JSON and back; numbers are written with four digits. Parsing fails with kMalformed: `origin`, the
// field, the value, and what is allowed.
Profile parse_profile(std::string_view json, const std::string& origin);
std::string to_json(const Profile& profile);

// Where measured profiles are kept: $XDG_CACHE_HOME/braid/profiles, or ~/.cache/braid/profiles;
// empty where neither variable is set.
std::filesystem::path profile_cache_folder();
// "cpu-2": the name under which `braid calibrate --threads 2` keeps what it measured.
std::string cpu_profile_name(int threads);

// By path (a name with a '/' or that ends in .json), else by name: from the cache folder, else
// among those that come with Braid. Fails with kNotFound, listing these, or as parse_profile.
Profile load_profile(const std::string& name_or_path);
// The same; nothing where there is no such profile.
std::optional<Profile> find_profile(const std::string& name_or_path);
std::vector<std::string_view> builtin_profile_names();

// Writes to_json, creating the folder. Fails with kResource, naming the path and the cause.
void save_profile(const Profile& profile, const std::filesystem::path& path);

}  // namespace braid
