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

// Of all other ops.
constexpr Kind kComputes = {"", "#5b7f95", "computation"},
               kSends = {"", "#c9a227", "communication"};

const Kind& kind_of(const Op& op) {
  const auto at = std::ranges::find(kKinds, op.def->kind, &Kind::name);
  if (at != kKinds.end()) return *at;
  return communicates(op) ? kSends : kComputes;
}

// The kinds in use.
std::string legend(std::span<const Timeline> timelines) {
  std::vector<const Kind*> used;
  for (const Timeline& timeline : timelines) {
    for (const RankTimes& rank : timeline.ranks) {
      for (const Launch& launch : rank.schedule->launches) {
        const Kind* kind = &kind_of(rank.schedule->op(*rank.program, launch));
        if (std::ranges::find(used, kind) == used.end()) used.push_back(kind);
      }
    }
  }
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

// Whether two ranks run launches of the same kinds at the same times, to a tenth of a microsecond.
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
};

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

}  // namespace

std::string timeline_svg(std::span<const Timeline> timelines) {
  double longest = 1e-9, y = kLane;
  for (const Timeline& timeline : timelines) {
    const Extent span = extent_of(timeline);
    longest = std::max(longest, span.end - span.begin);
  }
  std::string body;
  for (const Timeline& timeline : timelines) {
    y += kTitle;
    const Extent span = extent_of(timeline);
    body += fmt::format("<text x=\"4\" y=\"{}\" font-weight=\"bold\">{}, {:.3f} ms</text>\n", y - 8,
                        timeline.title, (span.end - span.begin) * 1e3);
    for (size_t r = 0, next = 0; r < timeline.ranks.size(); r = next) {
      const RankTimes& rank = timeline.ranks[r];
      for (next = r + 1; next < timeline.ranks.size() && alike(rank, timeline.ranks[next]);) ++next;
      const std::string who =
          next == r + 1 ? fmt::format("rank {}", r) : fmt::format("ranks {} to {}", r, next - 1);
      const auto& launches = rank.schedule->launches;
      for (Stream stream : kStreams) {
        if (std::ranges::count(launches, stream, &Launch::stream) == 0) continue;
        body +=
            fmt::format("<text x=\"4\" y=\"{}\">{} {}</text>\n", y + 12, who, to_string(stream));
        for (size_t i = 0; i < launches.size(); ++i) {
          if (launches[i].stream != stream) continue;
          const Op& op = rank.schedule->op(*rank.program, launches[i]);
          const LaunchTime& t = rank.times[i];
          body += fmt::format(
              "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{} "
              "{}: {:.1f} us</title></rect>\n",
              kLabel + (t.begin - span.begin) / longest * kWidth, y + 1,
              std::max(t.seconds() / longest * kWidth, 0.5), kLane - 2, kind_of(op).color,
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
             "font-family=\"sans-serif\" font-size=\"11\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             kLabel + kWidth + 8, y + 8) +
         legend(timelines) + body + "</svg>\n";
}

}  // namespace braid
