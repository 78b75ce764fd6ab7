#include "braid/backend/cuda/cuda_replay.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "braid/backend/cuda/memory.h"
#include "braid/base/clock.h"
#include "braid/base/error.h"
#include "braid/ops/one_sided.h"

namespace braid::cuda {
namespace {

// Waits are in the order of phases.
bool waits_in_phases(const BoundOp& op) {
  return !op.waits.empty() && op.waits.back().inside();
}

// Whether an op on this rank alone has no results: a rank may have no row of a divided value.
bool is_empty(const BoundOp& op) {
  const OpDef& def = *op.op->def;
  return def.reference != nullptr && def.remote == RemoteUse::none && def.mutated_inputs.empty() &&
         !op.out.empty() &&
         std::ranges::all_of(op.out, [](const TensorView& y) { return y.shape.elems() == 0; });
}

int64_t free_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "free memory");
  return static_cast<int64_t>(free);
}

}  // namespace

CudaReplay::CudaReplay(CudaBackend& backend, BoundStep step)
    : backend_(backend),
      by_stream_(backend.table().streams_wait()),
      ops_(std::move(step.launches)),
      parts_(step.parts),
      words_(backend, ops_.size(), by_stream_) {
  const DeviceScope scope(backend.device().id);
  load_upload_inputs();
  const auto parts_bytes = static_cast<int64_t>(parts_.size_bytes());
  host_parts_ = std::make_unique<PinnedMemory>(parts_bytes);
  device_parts_ = backend.allocate(parts_bytes);
  const auto add_copy = [&](const std::byte* from, std::byte* to, int64_t bytes) {
    uploads_.copies[uploads_.count++] = {reinterpret_cast<const uint32_t*>(from),
                                         reinterpret_cast<uint32_t*>(to), bytes / 4};
  };
  add_copy(host_parts_->data(), device_parts_->data(), parts_bytes);
  constexpr int64_t kFewBytes = 256 << 10;  // that few CTAs read sooner than a copy engine starts
  for (const InputCopy& in : step.inputs) {
    if (in.bytes > kFewBytes || in.bytes % 4 != 0 || uploads_.count == UploadList::kMaxCopies) {
      engine_uploads_.push_back(in);
      continue;
    }
    add_copy(in.staging, in.device, in.bytes);
  }

  asked_by_.assign(ops_.size(), -1);
  give_phases();
  if (by_stream_) ask_ahead();
  words_.lay_out();
  calls_.reserve(ops_.size());  // bound kernels keep references into it
  std::vector<LaunchArgs> args;
  done_.resize(ops_.size());
  for (const BoundOp& op : ops_) {
    const size_t i = calls_.size();
    calls_.push_back({op.op, op.in, op.out, op.axis, op.part});
    const BatchPart* part =
        reinterpret_cast<const BatchPart*>(device_parts_->data()) + (op.part - parts_.data());
    args.push_back({.call = calls_.back(),
                    .part = part,
                    .workspace = op.workspace,
                    .device = backend.device(),
                    .stream = op.stream,
                    .arena = op.arena,
                    .whole_batch = parts_.size() == 1,
                    .own_rows = op.own_rows,
                    .beside = op.beside,
                    .words = words_.of(i),
                    .asked_by = asked_by_[i] < 0 ? nullptr : words_.of(asked_by_[i]),
                    .by_stream = by_stream_});
    kernels_.push_back(is_empty(op) ? BoundKernel{}
                                    : backend.table().at(op.op->def->kind).bind(args.back()));
    used_[op.stream] = true;
    for (const Wait& wait : op.waits) {
      OwnedEvent& event = done_[wait.launch];
      if (!event) event = make_event();
    }
  }
  for (Stream s : kStreams) {
    if (s == Stream::compute || used_[s]) fork_join_[s] = make_event();
  }
  end_ = make_event();
  words_.upload();
  join_launches(step.groups, args);
}

// Every wait in a stream ends by itself: a kernel's by its deadline, a word's by its proxy's.
CudaReplay::~CudaReplay() {
  for (Stream s : kStreams) cudaStreamSynchronize(stream(s));
}

// Launches whose kernels wait inside are told when their phases begin, and ask for the pushes of
// parts of their results; other launches wait for everything before they begin.
void CudaReplay::give_phases() {
  begins_.resize(ops_.size());
  for (size_t i = 0; i < ops_.size(); ++i) {
    const BoundOp& op = ops_[i];
    if (!op.waits_inside || !waits_in_phases(op)) continue;
    words_.add(i, true, by_stream_ && op.op->def->phases->parts(op.op->attrs) > 0);
    for (const Wait& wait : op.waits) {
      if (!wait.inside()) continue;
      Begins& begins = begins_[wait.launch];
      BRAID_CHECK(begins.launch < 0, "two launches wait for a launch inside");
      begins = {static_cast<int>(i), static_cast<uint32_t>(wait.phase)};
    }
  }
  for (size_t i = 0; i < ops_.size(); ++i) {
    for (const Wait& wait : ops_[i].waits) {
      if (wait.partial() && words_.asks(wait.launch)) asked_by_[i] = wait.launch;
    }
  }
}

// A pull right behind another pull on its stream, without other waits, is asked for together with
// the first if both may be under way: the second's buffers were opened earlier (ops::kBuffers), and
// its sources made earlier.
void CudaReplay::ask_ahead() {
  PerStream<int> newest;
  newest.fill(-1);
  const auto moves_of = [&](int i) {
    const bool pulls = i >= 0 && ops_[i].op->def->remote == RemoteUse::pulls;
    return pulls ? &ops_[i].op->attrs.as<ops::MoveAttrs>() : nullptr;
  };
  for (size_t i = 0; i < ops_.size(); ++i) {
    int& newer = newest[ops_[i].stream];
    const int first = std::exchange(newer, static_cast<int>(i));
    const ops::MoveAttrs *before = moves_of(first), *pull = moves_of(newer);
    if (before == nullptr || pull == nullptr || !ops_[i].waits.empty()) continue;
    if (!backend_.table().goes_ahead(*before, *pull)) continue;
    words_.add(first, false, true);
    asked_by_[i] = first;
  }
}

void CudaReplay::join_launches(std::span<const LaunchGroup> groups,
                               std::span<const LaunchArgs> args) {
  joined_.resize(ops_.size());
  for (const LaunchGroup& group : groups) {
    joined_[group.first] = {
        group.count,
        backend_.table().join_of(*group.form).bind(group, args.subspan(group.first, group.count))};
  }
}

void CudaReplay::prepare() {
  const DeviceScope scope(backend_.device().id);
  if (stale(stepped_)) capture(stepped_, {}, true);
}

void CudaReplay::run(std::span<LaunchTime> times) {
  const DeviceScope scope(backend_.device().id);
  set_parts();
  if (times.empty()) {
    play(stepped_, {}, true);
    finish();
  } else {
    run_timed(times);
  }
}

void CudaReplay::begin_loop() {
  const DeviceScope scope(backend_.device().id);
  set_parts();
  upload(stream(Stream::compute));
}

void CudaReplay::upload(cudaStream_t stream) const {
  for (const InputCopy& in : engine_uploads_) {
    check_cuda(cudaMemcpyAsync(in.device, in.staging, in.bytes, cudaMemcpyHostToDevice, stream),
               "inputs of a step");
  }
  upload_inputs(uploads_, {stream});
}

void CudaReplay::prepare_loop(const Hooks& hooks, bool at_once) {
  const DeviceScope scope(backend_.device().id);
  if ((at_once || looped_.runs > 0) && stale(looped_)) capture(looped_, hooks, false);
}

void CudaReplay::enqueue(const Hooks& hooks) {
  const DeviceScope scope(backend_.device().id);
  play(looped_, hooks, false);
}

void CudaReplay::prepare_put(const Hooks& hooks) {
  const DeviceScope scope(backend_.device().id);
  if (stale(put_)) capture(put_, hooks, true);
}

void CudaReplay::put(const Hooks& hooks) {
  const DeviceScope scope(backend_.device().id);
  set_parts();
  play(put_, hooks, true);
}

void CudaReplay::set_parts() {
  std::memcpy(host_parts_->data(), parts_.data(), parts_.size_bytes());
}

bool CudaReplay::stale(const Captured& captured) const {
  if (!captured.graph) return true;
  for (size_t i = 0; i < captured.parts.size(); ++i) {
    if (!(captured.parts[i] == parts_[i])) return true;
  }
  return false;
}

void CudaReplay::play(Captured& captured, const Hooks& hooks, bool upload) {
  if (captured.runs++ == 0 && !captured.graph) {
    issue(hooks, upload, nullptr);
  } else {
    if (stale(captured)) capture(captured, hooks, upload);
    check_cuda(cudaGraphLaunch(captured.graph.get(), stream(Stream::compute)), "a graph");
  }
}

void CudaReplay::capture(Captured& captured, const Hooks& hooks, bool upload) {
  backend_.count_preparation();
  finish();  // nothing of this rank waits on the device while a graph is made
  const int64_t before = free_bytes();
  const cudaStream_t main = stream(Stream::compute);
  check_cuda(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal), "graph capture");
  cudaGraph_t raw = nullptr;
  try {
    issue(hooks, upload, nullptr);
  } catch (...) {
    cudaStreamEndCapture(main, &raw);
    if (raw != nullptr) cudaGraphDestroy(raw);
    throw;
  }
  check_cuda(cudaStreamEndCapture(main, &raw), "graph capture");
  const OwnedGraph graph(raw);
  size_t nodes = 0;
  check_cuda(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "a graph's nodes");
  captured.launches = static_cast<int64_t>(nodes);
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaGraphInstantiate(&exec, graph.get(), 0), "making a graph");
  captured.graph.reset(exec);
  check_cuda(cudaGraphUpload(exec, main), "uploading a graph");
  captured.parts.clear();
  if (parts_.size() > 1) captured.parts.assign(parts_.begin(), parts_.end());
  captured.bytes = std::max<int64_t>(0, captured.bytes + before - free_bytes());
  ++num_graphs_;
}

void CudaReplay::issue(const Hooks& hooks, bool upload, std::vector<OwnedEvent>* events) {
  const cudaStream_t main = stream(Stream::compute);
  // Whether a stream's newest entry is one of Braid's kernels, which the next kernel may overlap.
  PerStream<bool> chained{};
  const auto wait = [&](Stream s, const OwnedEvent& event) {
    make_wait(stream(s), event);
    chained[s] = false;
  };
  if (upload) this->upload(main);
  words_.reset(main);
  if (hooks.before) hooks.before({main, false});
  record(fork_join_[Stream::compute], main);
  for (Stream s : kStreams) {
    if (s != Stream::compute && used_[s]) {
      wait(s, fork_join_[Stream::compute]);
    }
  }
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Stream s = ops_[i].stream;
    // A transfer of a result part was asked for by the part's launch: only that launch's end is
    // awaited.
    const auto wait_for = [&](const Wait& w) { wait(s, done_[w.launch]); };
    for (const Wait& w : ops_[i].waits) {
      if (!w.inside()) wait_for(w);
    }
    // Launches that another waits for inside follow each other on a stream: the last is enough.
    const bool phases = waits_in_phases(ops_[i]);
    if (phases && !words_.waits(i)) wait_for(ops_[i].waits.back());
    if (const LaunchWords* words = words_.of(i)) words->prepare();
    if (events) record((*events)[2 * i], stream(s));
    const bool joins = joined_[i].count > 0 && !events;
    const BoundKernel& kernel = joins ? joined_[i].kernel : kernels_[i];
    if (kernel) {
      kernel({stream(s), chained[s] && !events});
      chained[s] = ops_[i].op->def->remote != RemoteUse::pulls;  // which may be no kernel
    }
    if (begins_[i].launch >= 0) words_.begin(begins_[i].launch, begins_[i].phase, stream(s));
    if (joins) i += joined_[i].count - 1;
    if (events) record((*events)[2 * i + 1], stream(s));
    // It may have had no rows to wait with.
    if (words_.waits(i)) wait_for(ops_[i].waits.back());
    if (done_[i]) record(done_[i], stream(s));
  }
  for (Stream s : kStreams) {
    if (s == Stream::compute || !used_[s]) continue;
    record(fork_join_[s], stream(s));
    wait(Stream::compute, fork_join_[s]);
  }
  if (hooks.after) hooks.after({main, chained[Stream::compute]});
  words_.fetch(main);
}

std::string CudaReplay::describe() const {
  std::string joined;
  for (const Joined& j : joined_) {
    if (j.count > 0) joined += fmt::format("; {} launches joined in one", j.count);
  }
  return fmt::format("{} graphs made, {:.1f} MB of device memory{}", num_graphs_,
                     static_cast<double>(device_bytes()) / 1e6, joined);
}

void CudaReplay::finish() {
  record(end_, stream(Stream::compute));
  backend_.wait(end_.get());
  words_.check();
}

void CudaReplay::run_timed(std::span<LaunchTime> times) {
  std::vector<OwnedEvent> events;
  for (size_t i = 0; i < 2 * ops_.size(); ++i) events.push_back(make_event(true));
  const OwnedEvent base = make_event(true);
  finish();
  const double begin = steady_seconds();
  record(base, stream(Stream::compute));
  issue({}, true, &events);
  finish();
  const auto seconds = [&](const OwnedEvent& event) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, base.get(), event.get()), "an event's time");
    return begin + 1e-3 * static_cast<double>(ms);
  };
  for (size_t i = 0; i < ops_.size(); ++i) {
    times[i] = {seconds(events[2 * i]), seconds(events[2 * i + 1])};
  }
}

}  // namespace braid::cuda
