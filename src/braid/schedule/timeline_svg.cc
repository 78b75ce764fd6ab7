#include "braid/schedule/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "braid/schedule/partition.h"

namespace braid {
namespace {

constexpr double kLabel = 130, kWidth = 1200, kLane = 16, kTitle = 28;

struct Kind {
  std::string_view name, color, meaning;
};
constexpr std::array<Kind, 5> kKinds = {{{"segment_attention", "#3b6ea5", "attention computes"},
                                         {"pull", "#d98032", "pull: rows of other ranks come in"},
                                         {"push", "#7a9a3a", "push: rows go to other ranks"},
                                         {"sync", "#b03a48", "sync: ranks meet"},
                                         {"buffers", "#999999", "buffers are opened"}}};

// All other ops, and spans.
constexpr Kind kComputes = {"", "#5b7f95", "computation"},
               kSends = {"", "#c9a227", "communication"},
               kSpan = {"", "#8a6fa8", "a step as a whole"};

const Kind& kind_of(const Op& op) {
  const auto at = std::ranges::find(kKinds, op.def->kind, &Kind::name);
  if (at != kKinds.end()) return *at;
  return communicates(op) ? kSends : kComputes;
}

// The kinds in use.
std::string legend(std::span<const Timeline> timelines, bool spans) {
  std::vector<const Kind*> used;
  for (const Timeline& timeline : timelines) {
    for (const RankTimes& rank : timeline.ranks) {
      for (const Launch& launch : rank.schedule->launches) {
        const Kind* kind = &kind_of(rank.schedule->op(*rank.program, launch));
        if (std::ranges::find(used, kind) == used.end()) used.push_back(kind);
      }
    }
  }
  if (spans) used.push_back(&kSpan);
  std::string line;
  double x = 4;
  for (const Kind* of : used) {
    const Kind& kind = *of;
    line += fmt::format("<rect x=\"{}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{}\"/>", x,
                        kind.color);
    line += fmt::format("<text x=\"{}\" y=\"18\">{}</text>\n", x + 16, kind.meaning);
    x += 36 + 6.2 * static_cast<double>(kind.meaning.size());
  }
  return line;
}

// Whether two ranks run launches of equal kinds at equal times, to a tenth of a microsecond.
bool alike(const RankTimes& a, const RankTimes& b) {
  const auto& x = a.schedule->launches;
  const auto& y = b.schedule->launches;
  const auto near = [](double s, double t) { return std::abs(s - t) < 1e-7; };
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].stream != y[i].stream || !near(a.times[i].begin, b.times[i].begin) ||
        !near(a.times[i].end, b.times[i].end) ||
        a.schedule->op(*a.program, x[i]).def != b.schedule->op(*b.program, y[i]).def) {
      return false;
    }
  }
  return true;
}

struct Extent {
  double begin = INFINITY, end = 0;
  double seconds() const { return end - begin; }
};

Extent extent_of(const SpanLanes& lanes) {
  Extent extent;
  for (const SpanLanes::Lane& lane : lanes.lanes) {
    for (const TraceSpan& span : lane.spans) {
      extent.begin = std::min(extent.begin, span.begin);
      extent.end = std::max(extent.end, span.end);
    }
  }
  return extent;
}

Extent extent_of(const Timeline& timeline) {
  Extent span;
  for (const RankTimes& rank : timeline.ranks) {
    for (const LaunchTime& t : rank.times) {
      span.begin = std::min(span.begin, t.begin);
      span.end = std::max(span.end, t.end);
    }
  }
  return span;
}

// The pictures' body as it grows downwards.
class Drawing {
 public:
  explicit Drawing(double seconds) : seconds_(seconds) {}

  void title(const std::string& text, const Extent& extent) {
    y_ += kTitle;
    begin_ = extent.begin;
    body_ += fmt::format("<text x=\"4\" y=\"{}\" font-weight=\"bold\">{}, {:.3f} ms</text>\n",
                         y_ - 8, text, extent.seconds() * 1e3);
  }
  void lane(const std::string& name) {
    body_ += fmt::format("<text x=\"4\" y=\"{}\">{}</text>\n", y_ + 12, name);
    y_ += kLane;
  }
  // In the last lane.
  void box(double begin, double end, const Kind& kind, const std::string& tooltip) {
    body_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}: {:.1f} "
        "us</title></rect>\n",
        kLabel + (begin - begin_) / seconds_ * kWidth, y_ - kLane + 1,
        std::max((end - begin) / seconds_ * kWidth, 0.5), kLane - 2, kind.color, tooltip,
        (end - begin) * 1e6);
  }
  // Of round steps, about eight.
  void scale() {
    const double longest = seconds_ * 1e3;
    const double rough = longest / 8, power = std::pow(10, std::floor(std::log10(rough)));
    const double step = rough > 5 * power ? 10 * power : rough > 2 * power ? 5 * power : 2 * power;
    for (double ms = 0; ms <= longest; ms += step) {
      const double x = kLabel + ms / longest * kWidth;
      body_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#999999\"/>"
          "<text x=\"{3:.1f}\" y=\"{4}\">{5:.6g} ms</text>\n",
          x, y_ + 2, y_ + 8, x + 2, y_ + 14, ms);
    }
    y_ += kLane;
  }
  const std::string& body() const { return body_; }
  double height() const { return y_ + 8; }

 private:
  const double seconds_;  // as wide as the picture
  double y_ = kLane, begin_ = 0;
  std::string body_;
};

void draw(Drawing& drawing, const Timeline& timeline) {
  drawing.title(timeline.title, extent_of(timeline));
  for (size_t r = 0, next = 0; r < timeline.ranks.size(); r = next) {
    const RankTimes& rank = timeline.ranks[r];
    for (next = r + 1; next < timeline.ranks.size() && alike(rank, timeline.ranks[next]);) ++next;
    const std::string who =
        next == r + 1 ? fmt::format("rank {}", r) : fmt::format("ranks {} to {}", r, next - 1);
    const auto& launches = rank.schedule->launches;
    for (Stream stream : kStreams) {
      if (std::ranges::count(launches, stream, &Launch::stream) == 0) continue;
      drawing.lane(fmt::format("{} {}", who, to_string(stream)));
      for (size_t i = 0; i < launches.size(); ++i) {
        if (launches[i].stream != stream) continue;
        const Op& op = rank.schedule->op(*rank.program, launches[i]);
        const LaunchGroup* const group = ran_as_one(rank, static_cast<int>(i));
        if (group != nullptr && static_cast<int>(i) > group->first) continue;
        drawing.box(rank.times[i].begin, rank.times[i].end, kind_of(op),
                    group != nullptr
                        ? fmt::format("{}, {} launches as one", group->kernel, group->count)
                        : fmt::format("{} {}", op.def->kind, to_string(op.attrs)));
      }
    }
  }
}

}  // namespace

std::string timeline_svg(std::span<const Timeline> timelines, std::span<const SpanLanes> spans) {
  double longest = 1e-9;
  for (const Timeline& timeline : timelines) {
    longest = std::max(longest, extent_of(timeline).seconds());
  }
  for (const SpanLanes& lanes : spans) longest = std::max(longest, extent_of(lanes).seconds());
  Drawing drawing(longest);
  for (const Timeline& timeline : timelines) draw(drawing, timeline);
  for (const SpanLanes& lanes : spans) {
    drawing.title(lanes.title, extent_of(lanes));
    for (const SpanLanes::Lane& lane : lanes.lanes) {
      drawing.lane(lane.name);
      for (const TraceSpan& span : lane.spans) {
        drawing.box(span.begin, span.end, kSpan, span.name);
      }
    }
  }
  drawing.scale();
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             kLabel + kWidth + 8, drawing.height()) +
         legend(timelines, !spans.empty()) + drawing.body() + "</svg>\n";
}

}  // namespace braid
