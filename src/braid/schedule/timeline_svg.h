#pragma once

#include <span>
#include <string>

#include "braid/schedule/trace.h"

namespace braid {

// Lanes for spans other than launches, below a title: steps that a device ran by itself.
struct SpanLanes {
  struct Lane {
    std::string name;
    std::span<const TraceSpan> spans;
  };
  std::string title;
  std::vector<Lane> lanes;
};

// Timelines in a single SVG picture: a legend, then for each timeline a title and a lane for every
// rank and stream in use, on a common scale of time. Launches are boxes in their kind's color, with
// a description as tooltip. Neighbouring ranks that run alike share lanes. Spans come last.
std::string timeline_svg(std::span<const Timeline> timelines,
                         std::span<const SpanLanes> spans = {});

}  // namespace braid
