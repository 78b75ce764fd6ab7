#pragma once

#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/schedule/op_scheduler.h"

namespace braid {

// Makes each one-sided transfer of sequence-parallel attention and of expert rows a task.
inline void split_transfers(PartitionRules& rules) {
  for (const char* tag : {kRingTag, kLinkTag, kSendTag, kArrivalTag}) rules.mark(tag);
}

// Stream for communication beside computation: inside a ring group the side stream, so that near
// transfers do not queue behind far ones, and for arrivals of expert rows, which wait beside the
// next rows that leave; otherwise the comm stream.
inline Stream stream_of(const Task& task) {
  if (task.is(kRingTag) || task.is(kArrivalTag)) return Stream::side;
  return task.communicates() || task.is(kLinkTag) ? Stream::comm : Stream::compute;
}

}  // namespace braid
