#include "braid/fabric/link.h"

#include <cmath>

#include "braid/base/error.h"

namespace braid::fabric {
namespace {

void validate_speed(const std::optional<Link>& speed, LinkClass link) {
  if (!speed) return;
  if (!std::isfinite(speed->bytes_per_second) || speed->bytes_per_second <= 0) {
    fail(ErrorCode::kInvalidArgument, "{} link: bandwidth {} bytes/s, must be positive",
         to_string(link), speed->bytes_per_second);
  }
  if (!(speed->latency_seconds >= 0 && speed->latency_seconds <= 1)) {
    fail(ErrorCode::kInvalidArgument, "{} link: latency {} s, must be 0 to 1", to_string(link),
         speed->latency_seconds);
  }
}

}  // namespace

void LinkModel::validate(int world) const {
  if (machines < 1 || world % machines != 0) {
    fail(ErrorCode::kInvalidArgument, "{} ranks do not spread evenly over {} machines", world,
         machines);
  }
  if (racks < 1 || machines % racks != 0) {
    fail(ErrorCode::kInvalidArgument, "{} machines do not spread evenly over {} racks", machines,
         racks);
  }
  validate_speed(machine_link, LinkClass::machine);
  validate_speed(cluster_link, LinkClass::cluster);
  if (jitter && !(jitter->max_delay_seconds >= 0 && jitter->max_delay_seconds <= 1)) {
    fail(ErrorCode::kInvalidArgument, "jitter of {} s, must be 0 to 1", jitter->max_delay_seconds);
  }
}

LinkClass LinkModel::between(int from, int to, int world) const {
  if (from == to) return LinkClass::device;
  const int devices = world / machines;
  return from / devices == to / devices ? LinkClass::machine : LinkClass::cluster;
}

const std::optional<Link>& LinkModel::speed(LinkClass link) const {
  static const std::optional<Link> kMemory;
  if (link == LinkClass::device) return kMemory;
  return link == LinkClass::machine ? machine_link : cluster_link;
}

bool LinkModel::emulated(LinkClass link) const {
  return link != LinkClass::device && (jitter || speed(link));
}

std::string LinkModel::describe(int world) const {
  const int devices = world / machines;
  std::string text =
      fmt::format("{}{} machine{} x {} device{}", machines > 1 || any_emulated() ? "emulated " : "",
                  machines, machines == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
  for (LinkClass link : {LinkClass::machine, LinkClass::cluster}) {
    if (const auto& s = speed(link)) {
      text += fmt::format(", {} {:.4g} GB/s + {:.4g} us", to_string(link),
                          s->bytes_per_second * 1e-9, s->latency_seconds * 1e6);
    }
  }
  if (shared_port) text += ", one port a machine";
  if (jitter) {
    text += fmt::format(", jitter to {:.4g} us (seed {})", jitter->max_delay_seconds * 1e6,
                        jitter->seed);
  }
  return text;
}

}  // namespace braid::fabric
