#pragma once

#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/op_scheduler.h"

namespace braid {

// Makes each one-sided transfer of sequence-parallel attention a task.
inline void split_transfers(PartitionRules& rules) {
  rules.mark(kRingTag);
  rules.mark(kLinkTag);
}

// Stream for communication beside computation: inside a ring group the side stream, so that near
// transfers do not queue behind far ones; otherwise the comm stream.
inline Stream stream_of(const Task& task) {
  if (task.is(kRingTag)) return Stream::side;
  return task.communicates() || task.is(kLinkTag) ? Stream::comm : Stream::compute;
}

}  // namespace braid
