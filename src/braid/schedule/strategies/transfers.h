#pragma once

#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/schedule/op_scheduler.h"

namespace braid {

// Makes a task from each one-sided transfer of sequence-parallel attention and expert rows.
inline void split_transfers(PartitionRules& rules) {
  for (const char* tag : {kRingTag, kLinkTag, kSendTag, kArrivalTag}) rules.mark(tag);
}

// Stream for communication beside computation: the side stream inside a ring group, so that near
// transfers do not queue behind far transfers, and for arrivals of expert rows, which wait beside
// the next leaving rows; otherwise the comm stream.
inline Stream stream_of(const Task& task) {
  if (task.is(kRingTag) || task.is(kArrivalTag)) return Stream::side;
  return task.communicates() || task.is(kLinkTag) ? Stream::comm : Stream::compute;
}

}  // namespace braid
