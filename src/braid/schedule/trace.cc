#include "braid/schedule/trace.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/base/part_file.h"
#include "braid/schedule/partition.h"
#include "braid/schedule/simulator.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kMicro = 1e6;
constexpr int64_t kFirstLane = 16;  // thread ids of lanes other than streams

double first_begin(const Timeline& timeline) {
  double first = std::numeric_limits<double>::infinity();
  for (const RankTimes& rank : timeline.ranks) {
    for (const LaunchTime& t : rank.times) first = std::min(first, t.begin);
  }
  return std::isfinite(first) ? first : 0;
}

// Events one per line.
class Events {
 public:
  explicit Events(std::ostream& out) : out_(out) {}

  void add(const Json& event) {
    out_ << (first_ ? "\n" : ",\n") << event.dump(-1, ' ', false, Json::error_handler_t::replace);
    first_ = false;
  }
  void name(std::string_view what, int rank, int stream, Json args) {
    add({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", stream}, {"args", std::move(args)}});
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

// With tokens divided over ranks, this rank has its part in each micro-batch.
Cost cost_of(const Timeline& timeline, size_t rank, const Op& op, const Launch& launch) {
  const RankTimes& r = timeline.ranks[rank];
  Work work = work_of(launch, timeline.works);
  if (r.program->capacity.shard > 0) {
    work.extents.shard = 0;
    for (int mb = launch.micro_batch; mb < launch.micro_batch_end(); ++mb) {
      const int64_t tokens = timeline.works[mb].extents.token;
      work.extents.shard +=
          even_part(tokens, std::ssize(timeline.ranks), static_cast<int64_t>(rank)).size();
    }
  }
  work.extents.expert_row = r.program->even_expert_rows(work.extents.token);
  return r.program->cost(op, work);
}

Cost cost_of(const Timeline& timeline, size_t rank, const Launch& launch) {
  const RankTimes& r = timeline.ranks[rank];
  if (launch.joined.empty()) {
    return cost_of(timeline, rank, r.schedule->op(*r.program, launch), launch);
  }
  Cost all;
  launch.for_each_op([&](int op, int mb) {
    all += cost_of(timeline, rank, r.program->ops[op], {.op = op, .micro_batch = mb});
  });
  return all;
}

// Sums over a rank's steps.
struct RankTotals {
  PerStream<double> busy{};
  double wire_bytes = 0;
};

void name_rank(Events& events, const RankTimes& rank, int pid) {
  events.name("process_name", pid, 0, {{"name", fmt::format("rank {}", pid)}});
  events.name("process_sort_index", pid, 0, {{"sort_index", pid}});
  for (Stream stream : kStreams) {
    const auto used = [&](const Launch& launch) { return launch.stream == stream; };
    if (!std::ranges::any_of(rank.schedule->launches, used)) continue;
    events.name("thread_name", pid, static_cast<int>(stream), {{"name", to_string(stream)}});
    events.name("thread_sort_index", pid, static_cast<int>(stream),
                {{"sort_index", static_cast<int>(stream)}});
  }
}

// "layers.0.attn linear", and in a divided batch the micro-batch behind: "layers.0.attn linear, mb
// 1".
std::string slice_name(const Schedule& schedule, const Launch& launch, const Op& op) {
  std::string name(op.def->kind);
  if (!op.scope.empty()) name = fmt::format("{} {}", op.scope, name);
  if (schedule.micro_batches.size() > 1) name += ", mb " + micro_batches_of(launch);
  return name;
}

// A viewer's name for a colour: each micro-batch's computation has a colour, and all communication
// shares another.
std::string_view slice_color(const Launch& launch, const Op& op) {
  constexpr std::array<std::string_view, 4> kColors = {"thread_state_running", "rail_response",
                                                       "thread_state_runnable", "rail_animation"};
  if (communicates(op)) return "rail_load";
  return kColors[static_cast<size_t>(launch.micro_batch) % kColors.size()];
}

Json load_json(const ExpertRows& counted) {
  return {{"first", counted.first},
          {"max_over_mean", max_over_mean(counted.rows)},
          {"idle", idle_experts(counted.rows)},
          {"rows", counted.rows}};
}

void write_rank(Events& events, const Timeline& timeline, int pid, double origin,
                RankTotals& totals) {
  const RankTimes& rank = timeline.ranks[pid];
  struct Sent {
    double at, bytes;
  };
  std::vector<Sent> sent;
  for (size_t i = 0; i < rank.times.size(); ++i) {
    const Launch& launch = rank.schedule->launches[i];
    const Op& op = rank.schedule->op(*rank.program, launch);
    const LaunchGroup* const group = ran_as_one(rank, static_cast<int>(i));
    if (group != nullptr && static_cast<int>(i) > group->first) continue;
    Cost cost = cost_of(timeline, pid, launch);
    const int end = group != nullptr ? group->end() : static_cast<int>(i) + 1;
    for (int j = static_cast<int>(i) + 1; j < end; ++j) {
      cost += cost_of(timeline, pid, rank.schedule->launches[j]);
    }
    const double begin = (rank.times[i].begin - origin) * kMicro;
    const std::string attributes =
        group != nullptr ? fmt::format("{} launches", group->count) : to_string(op.attrs);
    Json slice = {{"name", group != nullptr ? std::string(group->form->name)
                                            : slice_name(*rank.schedule, launch, op)},
                  {"cat", communicates(op) ? "communication" : "computation"},
                  {"cname", slice_color(launch, op)},
                  {"ph", "X"},
                  {"pid", pid},
                  {"tid", static_cast<int>(launch.stream)},
                  {"ts", begin},
                  {"dur", rank.times[i].seconds() * kMicro},
                  {"args",
                   {{"kernel", group != nullptr ? group->kernel : launch.kernel.name},
                    {"attributes", attributes},
                    {"launch", i},
                    {"micro_batch", micro_batches_of(launch)},
                    {"flops", cost.flops},
                    {"bytes", cost.bytes},
                    {"wire_bytes", cost.wire_bytes}}}};
    const auto counted = std::ranges::find(rank.experts, static_cast<int>(i), &ExpertRows::launch);
    if (counted != rank.experts.end()) slice["args"]["experts"] = load_json(*counted);
    events.add(slice);
    totals.busy[launch.stream] += rank.times[i].seconds();
    if (cost.wire_bytes > 0) sent.push_back({rank.times[i].end, cost.wire_bytes});
  }
  std::ranges::stable_sort(sent, {}, &Sent::at);
  const auto count = [&](double at) {
    events.add({{"name", "wire bytes"},
                {"ph", "C"},
                {"pid", pid},
                {"ts", (at - origin) * kMicro},
                {"args", {{"sent", totals.wire_bytes}}}});
  };
  if (!sent.empty()) count(first_begin(timeline));
  for (const Sent& s : sent) {
    totals.wire_bytes += s.bytes;
    count(s.at);
  }
}

}  // namespace

const LaunchGroup* ran_as_one(const RankTimes& rank, int launch) {
  const LaunchGroup* const group = rank.schedule->group_of(launch);
  if (group == nullptr) return nullptr;
  const double end = rank.times[group->first].end;
  for (int i = group->first + 1; i < group->end(); ++i) {
    if (rank.times[i].begin != end || rank.times[i].end != end) return nullptr;
  }
  return group;
}

double span_of(const Timeline& timeline) {
  double last = first_begin(timeline);
  const double first = last;
  for (const RankTimes& rank : timeline.ranks) {
    for (const LaunchTime& t : rank.times) last = std::max(last, t.end);
  }
  return last - first;
}

struct TraceWriter::Impl {
  explicit Impl(std::ostream& to) : out(to), events(to) {
    out << "{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [";
  }

  void add(const Timeline& timeline) {
    if (steps++ == 0) {
      if (lanes.empty()) origin = first_begin(timeline);
      about = {{"title", timeline.title}};
      if (!timeline.ranks.empty()) {
        const Schedule& schedule = *timeline.ranks[0].schedule;
        about["program"] = timeline.ranks[0].program->name;
        about["strategy"] = schedule.strategy;
        about["micro_batches"] = schedule.micro_batches.size();
        about["arena_bytes"] = schedule.memory.arena_bytes;
      }
    }
    seconds += span_of(timeline);
    for (size_t r = 0; r < timeline.ranks.size(); ++r) {
      if (r == ranks.size()) {
        ranks.emplace_back();
        name_rank(events, timeline.ranks[r], static_cast<int>(r));
      }
      write_rank(events, timeline, static_cast<int>(r), origin, ranks[r]);
    }
  }

  void add(int rank, const std::string& lane, std::span<const TraceSpan> spans) {
    if (spans.empty()) return;
    if (steps == 0 && lanes.empty()) origin = spans[0].begin;
    const auto [it, fresh] = lanes.try_emplace({rank, lane}, kFirstLane + std::ssize(lanes));
    const int id = static_cast<int>(it->second);
    if (fresh) {
      events.name("thread_name", rank, id, {{"name", lane}});
      events.name("thread_sort_index", rank, id, {{"sort_index", id}});
    }
    for (const TraceSpan& span : spans) {
      events.add({{"name", span.name},
                  {"cat", "loop"},
                  {"ph", "X"},
                  {"pid", rank},
                  {"tid", id},
                  {"ts", (span.begin - origin) * kMicro},
                  {"dur", (span.end - span.begin) * kMicro}});
    }
  }

  void finish() {
    Json list = Json::array();
    for (const RankTotals& rank : ranks) {
      Json busy;
      for (Stream stream : kStreams) {
        busy[std::string(to_string(stream))] = rank.busy[stream];
      }
      list.push_back({{"busy_seconds", std::move(busy)}, {"wire_bytes", rank.wire_bytes}});
    }
    about.update(remarks);
    about["steps"] = steps;
    about["step_seconds"] = seconds;
    about["ranks"] = std::move(list);
    out << "\n],\n\"otherData\": " << about.dump(1, ' ', false, Json::error_handler_t::replace)
        << "}\n";
  }

  std::unique_ptr<std::ofstream> file;  // if `out` is a private file
  std::string path;
  std::string part;  // name of the unfinished file
  std::ostream& out;
  Events events;
  int steps = 0;
  double origin = 0;
  double seconds = 0;
  std::vector<RankTotals> ranks;
  std::map<std::pair<int, std::string>, int64_t> lanes;  // by rank and name
  Json about = Json::object(), remarks = Json::object();
};

namespace {

[[noreturn]] void cannot_write(const std::string& path) {
  fail(ErrorCode::kResource, "cannot write the trace {}: {}", path,
       errno != 0 ? std::strerror(errno) : "unknown error");
}

}  // namespace

TraceWriter::TraceWriter(std::ostream& out) : impl_(std::make_unique<Impl>(out)) {}

TraceWriter::TraceWriter(const std::string& path) : impl_(nullptr) {
  errno = 0;
  const std::string part = part_file(path);
  auto file = std::make_unique<std::ofstream>(part, std::ios::binary | std::ios::trunc);
  if (!*file) cannot_write(path);
  impl_ = std::make_unique<Impl>(*file);
  impl_->file = std::move(file);
  impl_->path = path;
  impl_->part = part;
}

TraceWriter::~TraceWriter() {
  if (!impl_->file || !impl_->file->is_open()) return;
  try {
    finish();  // a stopped job leaves a whole file with its finished steps
  } catch (const Error&) {
  }
}

void TraceWriter::add(const Timeline& timeline) {
  impl_->add(timeline);
}

void TraceWriter::add(int rank, const std::string& lane, std::span<const TraceSpan> spans) {
  impl_->add(rank, lane, spans);
}

void TraceWriter::remark(const std::string& key, const std::string& text) {
  impl_->remarks[key] = text;
}

void TraceWriter::finish() {
  errno = 0;
  impl_->finish();
  if (!impl_->file) return;
  impl_->file->close();
  const bool moved =
      impl_->part == impl_->path || std::rename(impl_->part.c_str(), impl_->path.c_str()) == 0;
  if (!*impl_->file || !moved) cannot_write(impl_->path);
}

void write_trace(std::ostream& out, const Timeline& timeline) {
  TraceWriter writer(out);
  writer.add(timeline);
  writer.finish();
}

void write_trace(const std::string& path, const Timeline& timeline) {
  TraceWriter writer(path);
  writer.add(timeline);
  writer.finish();
}

}  // namespace braid
