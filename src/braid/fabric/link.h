#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "braid/parallel/topology.h"

// The way between two ranks, and the behaviour of an emulated link.
namespace braid::fabric {

inline constexpr int kNumLinkClasses = 3;

// A checker's delays: half of the transfers take up to max_delay_seconds longer, drawn from the
// seed. Only the memory model's order is kept.
struct Jitter {
  uint64_t seed = 0;
  double max_delay_seconds = 0;
};

// Layout and emulation of a world of ranks: rank r is device r % devices of machine r / devices,
// devices = world / machines. A class of links with a Link is emulated: its transfers are
// asynchronous, each takes its turn at the sender's and the receiver's port (full duplex,
// bytes_per_second each way), and arrives latency_seconds after its last byte was sent. A put or
// signal pays the latency once, a get twice: request and reply.
struct LinkModel {
  int machines = 1;
  int racks = 1;                     // of machines; plans alone tell links between racks apart
  std::optional<Link> machine_link;  // absent: the speed of memory
  std::optional<Link> cluster_link;  // absent: the speed of memory
  bool shared_port = false;          // a machine's devices share its port outwards
  std::optional<Jitter> jitter;

  // Throws kInvalidArgument unless racks divides machines, machines world, and speeds are positive
  // and finite.
  void validate(int world) const;
  LinkClass between(int from, int to, int world) const;
  const std::optional<Link>& speed(LinkClass link) const;
  bool emulated(LinkClass link) const;
  bool any_emulated() const { return machine_link || cluster_link || jitter; }
  // "1 machine x 4 devices", "emulated 2 machines x 2 devices, cluster_link 12.5 GB/s + 5 us".
  std::string describe(int world) const;
};

}  // namespace braid::fabric
