#include "braid/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace braid::app {
namespace {

constexpr double kLabel = 110, kWidth = 1200, kLane = 16, kTitle = 28;

std::string_view color_of(std::string_view kind) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kColors = {
      {{"segment_attention", "#3b6ea5"},
       {"pull", "#d98032"},
       {"push", "#7a9a3a"},
       {"sync", "#b03a48"},
       {"buffers", "#999999"}}};
  for (const auto& [name, color] : kColors) {
    if (name == kind) return color;
  }
  return "#666666";
}

struct Span {
  double begin = INFINITY, end = 0;
};

Span span_of(const Timeline& timeline) {
  Span span;
  for (const RankTimes& rank : timeline.ranks) {
    for (const LaunchTime& t : rank.times) {
      span.begin = std::min(span.begin, t.begin);
      span.end = std::max(span.end, t.end);
    }
  }
  return span;
}

}  // namespace

std::string timeline_svg(std::span<const Timeline> timelines) {
  double longest = 1e-9, y = 0;
  for (const Timeline& timeline : timelines) {
    const Span span = span_of(timeline);
    longest = std::max(longest, span.end - span.begin);
  }
  std::string body;
  for (const Timeline& timeline : timelines) {
    y += kTitle;
    const Span span = span_of(timeline);
    body += fmt::format("<text x=\"4\" y=\"{}\" font-weight=\"bold\">{}, {:.3f} ms</text>\n", y - 8,
                        timeline.title, (span.end - span.begin) * 1e3);
    for (size_t r = 0; r < timeline.ranks.size(); ++r) {
      const RankTimes& rank = timeline.ranks[r];
      const auto& launches = rank.schedule->launches;
      for (Stream stream : kStreams) {
        if (std::ranges::count(launches, stream, &Launch::stream) == 0) continue;
        body +=
            fmt::format("<text x=\"4\" y=\"{}\">rank {} {}</text>\n", y + 12, r, to_string(stream));
        for (size_t i = 0; i < launches.size(); ++i) {
          if (launches[i].stream != stream) continue;
          const Op& op = rank.schedule->op(*rank.program, launches[i]);
          const LaunchTime& t = rank.times[i];
          body += fmt::format(
              "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{} "
              "{}: {:.1f} us</title></rect>\n",
              kLabel + (t.begin - span.begin) / longest * kWidth, y + 1,
              std::max(t.seconds() / longest * kWidth, 0.5), kLane - 2, color_of(op.def->kind),
              op.def->kind, to_string(op.attrs), t.seconds() * 1e6);
        }
        y += kLane;
      }
    }
  }
  // A scale of round steps, about eight.
  const double rough = longest * 1e3 / 8, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = rough > 5 * power ? 10 * power : rough > 2 * power ? 5 * power : 2 * power;
  for (double ms = 0; ms <= longest * 1e3; ms += step) {
    const double x = kLabel + ms / (longest * 1e3) * kWidth;
    body += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#999999\"/>"
        "<text x=\"{3:.1f}\" y=\"{4}\">{5:.6g} ms</text>\n",
        x, y + 2, y + 8, x + 2, y + 14, ms);
  }
  y += kLane;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n",
             kLabel + kWidth + 8, y + 8) +
         body + "</svg>\n";
}

}  // namespace braid::app
