#include "braid/schedule/cost_model.h"

#include <algorithm>
#include <cmath>

#include "braid/base/math.h"
#include "braid/ops/head_dim.h"
#include "braid/ops/join_sequence.h"
#include "braid/schedule/partition.h"

namespace braid {
namespace {

// A single shot waits for a round of messages per this many bytes to each peer.
constexpr double kRoundBytes = 128 << 10;
// Tiles in a fused norm, and in attention that stores at peers: 1 / kTiles of the shorter part
// stays beside perfect overlap.
constexpr int kTiles = 8;

// Inputs of an op's rate (profile.h).
double rows_of(const OpDef& def, TypeList in, const Work& work) {
  if (def.rate.rows != nullptr) return def.rate.rows(in, work);
  if (in.empty()) return 1;
  return static_cast<double>(std::max<int64_t>(
      work.extents.of(in[0].axis, in[0].shape.rank() > 0 ? in[0].shape[0] : 1), 1));
}

// Ranks that divide a batch's tokens: all, or a group's if groups have their own sequences.
int token_ranks(const Program& program, int ranks) {
  const int64_t token = program.capacity.token, shard = program.capacity.shard;
  return ceil_div(token, int64_t{ranks}) == shard ? ranks
                                                  : static_cast<int>(ceil_div(token, shard));
}

std::string human(double x, std::string_view unit) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T"};
  size_t i = 0;
  while (x >= 1000 && i + 1 < std::size(kPrefixes)) x /= 1000, ++i;
  return fmt::format("{:.4g} {}{}", x, kPrefixes[i], unit);
}

}  // namespace

double LaunchCost::pipelined() const {
  const double longer = std::max(body(), wire()), shorter = std::min(body(), wire());
  return tiles > 0 ? longer + shorter / tiles : longer;
}

LaunchCost& LaunchCost::operator+=(const LaunchCost& other) {
  work += other.work;
  fixed = std::max(fixed, other.fixed);
  latency = std::max(latency, other.latency);
  compute += other.compute;
  memory += other.memory;
  machine += other.machine;
  cluster += other.cluster;
  rack += other.rack;
  units = std::max(units, other.units);
  transfers.insert(transfers.end(), other.transfers.begin(), other.transfers.end());
  return *this;
}

LaunchCost without_communication(const Op& op, LaunchCost cost) {
  if (communicates(op) && !op.def->collective.computes) return {};
  cost.latency = cost.machine = cost.cluster = cost.rack = cost.tiles = 0;
  cost.ranks = 1;
  cost.transfers.clear();
  return cost;
}

int communicating_ranks(const Op& op, int world) {
  if (!communicates(op) || op.def->one_sided) return 1;
  return op.def->collective.ranks != nullptr ? op.def->collective.ranks(op.attrs) : world;
}

CostModel::CostModel(Profile profile, const Topology& topology)
    : profile_(std::move(profile)), topology_(topology) {
  const auto take = [](LinkProfile& own, const Link& given) {
    if (given.bytes_per_second <= 0) return;
    own.bytes_per_second = given.bytes_per_second;
    own.latency_seconds = given.latency_seconds;
  };
  take(profile_.machine_link, topology.machine_link);
  take(profile_.cluster_link, topology.cluster_link);
}

LaunchCost CostModel::price(const Program& program, const Op& op, const Work& given, Stream stream,
                            int rank) const {
  const std::vector<ValueType> in = program.input_types(op), out = program.output_types(op);
  Work work = given;
  if (program.capacity.shard > 0) {
    const int ranks = token_ranks(program, topology_.ranks());
    work.extents.shard = even_part(work.extents.token, ranks, rank % ranks).size();
  }
  work.extents.expert_row = program.even_expert_rows(work.extents.token);
  LaunchCost cost{.work = op.def->cost(op.attrs, in, out, work)};
  if (!ops::keeps_place(op)) cost.fixed = profile_.launch_seconds;
  cost.units = profile_.stream_units[stream];
  cost.ranks = communicating_ranks(op, topology_.ranks());
  if (!communicates(op) || op.def->collective.computes) add_computation(cost, op, in, work);
  if (cost.ranks > 1) add_communication(cost, op, stream);
  if (op.def->transfers != nullptr) add_transfers(cost, op, in, work, rank);
  return cost;
}

void CostModel::add_computation(LaunchCost& cost, const Op& op, TypeList in,
                                const Work& work) const {
  const OpDef& def = *op.def;
  const size_t typed = def.rate.typed_input;
  const std::string_view dtype = typed < in.size() ? name(in[typed].dtype) : "";
  const Rate* rate = profile_.find(def.kind, dtype, cost.ranks);
  if (rate == nullptr) {
    const std::string_view kind = def.rate.kind.empty() ? def.kind : def.rate.kind;
    rate = profile_.find(kind, dtype, 1, ops::head_dim_of(op, in));
  }
  // Streams with fewer units are slower by as much.
  const double slower = profile_.stream_units[0] / cost.units;
  const double memory = cost.work.bytes / profile_.memory_bytes_per_second;
  if (rate == nullptr) {
    cost.memory = memory;
    return;
  }
  const double amount = rate->unit == Rate::Unit::flops ? cost.work.flops : cost.work.bytes;
  cost.compute = amount / rate->at(rows_of(def, in, work)) * std::max(slower, 1.0);
  cost.memory = rate->includes_memory ? std::min(memory, cost.compute) : memory;
  // Data from a cache puts no load on the memory.
  if (rate->includes_memory && rate->unit == Rate::Unit::bytes) cost.memory = 0;
}

void CostModel::add_communication(LaunchCost& cost, const Op& op, Stream stream) const {
  const double P = cost.ranks;
  const double local = std::min<double>(P, topology_.devices);  // of the group on this machine
  const LinkProfile &machine = profile_.machine_link, &cluster = profile_.cluster_link;
  const double near = std::min<double>(P, topology_.ranks_of_rack());  // in this rack
  const bool far = local < P;
  const LinkProfile* const uplink = near < P ? rack_link() : nullptr;
  const double latency = (uplink ? uplink->latency_seconds
                          : far  ? cluster.latency_seconds
                                 : machine.latency_seconds) +
                         (topology_.emulated ? profile_.emulated_message_seconds : 0);
  const double share = far && cluster.shared_port ? local : 1;
  const auto on_machine = [&](double bytes) {
    return bytes * (local - 1) / (P - 1) / machine.bytes_per_second;
  };
  const auto to_cluster = [&](double bytes) {
    return bytes * (P - local) / (P - 1) * share / cluster.bytes_per_second;
  };
  const auto to_racks = [&](double bytes) {
    if (uplink == nullptr) return 0.0;
    const double sharers = uplink->shared_port ? near : 1;
    return bytes * (P - near) / (P - 1) * sharers / uplink->bytes_per_second;
  };
  const auto on_wire = [&](double bytes) {
    return std::max({on_machine(bytes), to_cluster(bytes), to_racks(bytes)});
  };
  // A collective takes as many units as saturate its link.
  const double speed = far ? cluster.bytes_per_second : machine.bytes_per_second;
  const double movers = std::clamp(std::ceil(speed / profile_.unit_bytes_per_second), 1.0,
                                   profile_.stream_units[stream]);
  const double mover_speed = movers * profile_.unit_bytes_per_second;

  const CollectiveTraits& traits = op.def->collective;
  double wire = cost.work.wire_bytes;
  double steps = traits.rounds;
  if (traits.sums) {
    const double value = wire * P / (2 * (P - 1));  // bytes of the summed value
    const double one_shot = value * (P - 1), rounds = std::ceil(value / kRoundBytes);
    const auto time = [&](double bytes, double n) {
      return n * latency + std::max(on_wire(bytes), bytes / mover_speed);
    };
    steps = 2;
    if (time(one_shot, rounds) <= time(wire, steps)) {
      wire = one_shot;
      steps = rounds;
    }
  }
  cost.latency = steps * latency + profile_.collective_seconds;
  cost.machine = on_machine(wire);
  cost.cluster = to_cluster(wire);
  cost.rack = to_racks(wire);
  if (traits.computes) {
    cost.compute += wire / (cost.units * profile_.unit_bytes_per_second);
    cost.tiles = traits.products ? profile_.product_tiles : kTiles;
    if (cost.tiles == 1) cost.fixed += profile_.launch_seconds;  // two launches
  } else {
    cost.units = movers;
    cost.compute = wire / mover_speed;
  }
}

// A request travels before incoming data; a pull also waits for a host thread. Copies within a
// device cost device memory. Tiles stored at peers leave while later tiles are computed.
void CostModel::add_transfers(LaunchCost& cost, const Op& op, TypeList in, const Work& work,
                              int rank) const {
  const LinkProfile &machine = profile_.machine_link, &cluster = profile_.cluster_link;
  const LinkProfile* const uplink = rack_link();
  const bool stores = op.def->remote == RemoteUse::stores;
  const double host = op.def->remote == RemoteUse::pulls ? profile_.pull_seconds : 0;
  double on_device = 0;
  for (const Transfer& move : op.def->transfers(op.attrs, in, work)) {
    double latency = 0;
    LaunchCost::Transfer transfer{.from = rank, .to = move.peer};
    if (move.incoming) std::swap(transfer.from, transfer.to);
    switch (topology_.link(rank, move.peer)) {
      case LinkClass::device:
        on_device += move.bytes;
        break;
      case LinkClass::machine:
        transfer.seconds = move.bytes / machine.bytes_per_second;
        cost.machine += transfer.seconds;
        latency = machine.latency_seconds;
        break;
      case LinkClass::cluster:
        transfer.cluster = true;
        transfer.seconds = move.bytes / cluster.bytes_per_second;
        cost.cluster += transfer.seconds;
        latency = cluster.latency_seconds;
        if (uplink != nullptr && topology_.rack_of(rank) != topology_.rack_of(move.peer)) {
          transfer.rack = move.bytes / uplink->bytes_per_second;
          cost.rack += transfer.rack;
          latency = uplink->latency_seconds;
        }
        break;
    }
    if (transfer.seconds > 0) cost.transfers.push_back(transfer);
    if (stores) {
      cost.tiles = kTiles;
    } else {
      const double asked = transfer.seconds > 0 ? host : 0;
      cost.latency = std::max(cost.latency, asked + (move.incoming ? 2 * latency : latency));
    }
  }
  cost.memory += 2 * on_device / profile_.memory_bytes_per_second;
}

std::string CostModel::explain(const Program& program, const Op& op, const Work& work,
                               Stream stream) const {
  const LaunchCost c = price(program, op, work, stream);
  const std::vector<ValueType> in = program.input_types(op);
  const size_t typed = op.def->rate.typed_input;
  std::string_view bound = "launch";
  double longest = c.fixed;
  const auto compare = [&](double seconds, std::string_view name) {
    if (seconds > longest) longest = seconds, bound = name;
  };
  compare(c.latency, "latency");
  compare(c.compute, communicates(op) && c.tiles == 0 ? "copies" : "compute");
  compare(c.memory, "memory");
  compare(c.wire(), "wire");
  return fmt::format("{} {} {}: {}, {}, {} wire, {:.4g} rows: {} {:.4g} us", op.def->kind, op.scope,
                     typed < in.size() ? name(in[typed].dtype) : "", human(c.work.flops, "FLOP"),
                     human(c.work.bytes, "B"), human(c.work.wire_bytes, "B"),
                     rows_of(*op.def, in, work), bound, c.seconds() * 1e6);
}

}  // namespace braid
