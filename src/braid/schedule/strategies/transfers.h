#pragma once

#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/op_scheduler.h"

namespace braid {

// Makes the one-sided transfers of sequence-parallel attention tasks of their own.
inline void split_transfers(PartitionRules& rules) {
  rules.mark(kRingTag);
  rules.mark(kLinkTag);
}

// Where communication runs beside computation: inside a ring group on the side stream, so that it
// does not queue behind what goes further; all other on the comm stream.
inline Stream stream_of(const Task& task) {
  if (task.is(kRingTag)) return Stream::side;
  return task.communicates() || task.is(kLinkTag) ? Stream::comm : Stream::compute;
}

}  // namespace braid
