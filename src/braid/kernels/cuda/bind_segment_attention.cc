// Binds segment attention to its kernel.
#include <algorithm>
#include <set>

#include "braid/backend/cuda/handles.h"
#include "braid/backend/cuda/launch_words.h"
#include "braid/backend/cuda/memory.h"
#include "braid/base/math.h"
#include "braid/fabric/peer/device_endpoint.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_attention.h"
#include "braid/kernels/cuda/bind_dual.h"
#include "braid/kernels/cuda/decode/device/plain_segments.h"
#include "braid/kernels/cuda/register.h"
#include "braid/kernels/cuda/sequence_views.h"
#include "braid/ops/segment_attention.h"

namespace braid::cuda {
namespace {

using ops::SegmentAttentionAttrs;
constexpr size_t kQ = SegmentAttentionAttrs::kFirstQ;
static_assert(kMaxKvSegments >= ops::kMostSegments);

// Query heads over whole, equal groups of KV heads.
struct Heads {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t kv = 0;  // the first KV head
  int64_t kv_count = 0;
};

// Heads of a call: perhaps a cut group, then whole groups, then perhaps another cut group.
std::vector<Heads> equal_groups(const SegmentAttentionAttrs& a) {
  std::vector<Heads> out;
  for (int64_t h = 0; h < a.heads;) {
    const int64_t kv = (h + a.head_offset) / a.group;
    const int64_t left = std::min((kv + 1) * a.group - a.head_offset, a.heads) - h;
    const int64_t whole = left == a.group ? (a.heads - h) / a.group : 0;
    out.push_back({h, whole > 0 ? whole * a.group : left, kv, std::max<int64_t>(whole, 1)});
    h += out.back().count;
  }
  return out;
}

// A kernel launch's share of a call: some heads, at most as many segments as the kernel takes.
struct Part {
  Heads heads;
  size_t q_begin = 0, q_end = 0;
  int kv_begin = 0, kv_end = 0;
  bool first = true, last = true;  // among the KV segments of the queries
};

std::vector<Part> parts_of(const SegmentAttentionAttrs& a) {
  std::vector<Part> parts;
  const int num_kv = static_cast<int>(a.kv.size());
  for (const Heads& heads : equal_groups(a)) {
    for (size_t q = 0; q < a.q.size(); q += kMaxQSegments) {
      for (int kv = 0; kv == 0 || kv < num_kv; kv += kMaxKvSegments) {
        const int end = std::min(kv + kMaxKvSegments, num_kv);
        parts.push_back(
            {heads, q, std::min(q + kMaxQSegments, a.q.size()), kv, end, kv == 0, end == num_kv});
      }
    }
  }
  return parts;
}

// Destinations of other ranks' finished rows: straight to the owners.
class Owners {
 public:
  explicit Owners(const LaunchArgs& args)
      : call_(args.call), memory_(dynamic_cast<fabric::SymmetricMemory*>(args.arena)) {
    const auto& a = call_.attrs<SegmentAttentionAttrs>();
    const auto stores = [&](const ops::QSegment& s) { return a.stored(s, 1, 1) > 0; };
    if (std::ranges::none_of(a.q, stores)) memory_ = nullptr;
    if (memory_ != nullptr) tag_ = memory_->endpoint().tag("store");
  }

  std::byte* place(std::byte* local, int owner) const {
    BRAID_CHECK(memory_ != nullptr, "segment_attention: the arena is no symmetric memory");
    return memory_->on_peer(local, owner);
  }

  void count(int64_t sequences) const {
    if (memory_ == nullptr) return;
    const auto& a = call_.attrs<SegmentAttentionAttrs>();
    fabric::Endpoint& e = memory_->endpoint();
    for (const ops::QSegment& s : a.q) {
      const int64_t elems = a.stored(s, sequences, call_.in[0].shape[3]);
      if (elems == 0) continue;
      e.traffic().add(tag_, fabric::Verb::put, e.link(e.rank(), s.owner),
                      bytes_of(call_.in[kQ].dtype, elems));
    }
  }

 private:
  const OpCall& call_;
  fabric::SymmetricMemory* memory_;
  fabric::Tag tag_;
};

// The kernel's call; its spans point into Call.
struct Call {
  AttentionDesc desc;
  std::vector<QTensor> q;
  std::vector<KvTensor> kv;
  AttentionParams params() const { return {q, kv}; }
};

// With `phases`, some data arrives during the kernel.
Call make_call(const OpCall& call, const Part& part, int64_t sequences, const Owners& owners,
               bool phases = false) {
  const auto& a = call.attrs<SegmentAttentionAttrs>();
  const int64_t D = call.in[0].shape[3];
  Call out;
  AttentionDesc& d = out.desc;
  d.dtype = call.in[kQ].dtype;
  d.batch = static_cast<int>(sequences);
  d.num_q_heads = static_cast<int>(part.heads.count);
  d.num_kv_heads = static_cast<int>(part.heads.kv_count);
  d.head_dim_qk = d.head_dim_v = static_cast<int>(D);
  d.scale = a.scale;
  d.window_left = static_cast<int>(a.window_left);
  d.window_right = static_cast<int>(a.window_right);
  d.load_state = a.load_state || !part.first;
  d.finalize = a.finalize && part.last;
  const auto to_int = [](int64_t x) { return static_cast<int32_t>(x); };
  for (size_t i = part.q_begin; i < part.q_end; ++i) {
    const ops::QSegment& s = a.q[i];
    QTensor q;
    q.q = at(call.in[kQ + static_cast<size_t>(s.q)], s.row, s.head + part.heads.begin);
    q.q_stride = strides_of(call.in[kQ + static_cast<size_t>(s.q)]);
    q.state_o = at(call.in[0], s.state_row, part.heads.begin);
    q.state_l = reinterpret_cast<float*>(at(call.in[1], s.state_row, part.heads.begin));
    q.state_m = reinterpret_cast<float*>(at(call.in[2], s.state_row, part.heads.begin));
    q.state_stride = strides_of(call.in[0]);
    q.row_stride = strides_of(call.in[1]);
    if (d.finalize) {
      const TensorView& o = call.in[a.kFirstResult + static_cast<size_t>(s.out)];
      std::byte* const local = at(o, s.out_row, s.out_head + part.heads.begin);
      q.o = s.owner < 0 ? local : owners.place(local, s.owner);
      q.o_stride = strides_of(o);
    }
    q.length = to_int(s.rows);
    q.offset = to_int(s.position);
    q.kv_begin = std::clamp(s.kv_begin, part.kv_begin, part.kv_end) - part.kv_begin;
    q.kv_end = std::clamp(s.kv_end, part.kv_begin, part.kv_end) - part.kv_begin;
    if (phases) q.stage = s.phase, q.early = s.part != kLastPart;
    out.q.push_back(q);
  }
  for (int i = part.kv_begin; i < part.kv_end; ++i) {
    const ops::KvSegment& s = a.kv[i];
    const size_t pair = kQ + static_cast<size_t>(a.num_q + 2 * s.kv);
    KvTensor kv;
    kv.k = at(call.in[pair], s.row, s.head + part.heads.kv);
    kv.v = at(call.in[pair + 1], s.row, s.head + part.heads.kv);
    kv.k_stride = strides_of(call.in[pair]);
    kv.v_stride = strides_of(call.in[pair + 1]);
    kv.length = to_int(s.rows);
    kv.offset = to_int(s.position);
    if (phases) kv.stage = s.phase;
    out.kv.push_back(kv);
  }
  return out;
}

// Loads a config's kernel by a call of a query and a key: no rank may load a kernel while that
// kernel, or work it waits for, could be waiting on the device.
void load_kernel(AttentionDesc desc, const AttentionConfig& config, const DeviceInfo& device) {
  const int64_t width = int64_t{desc.num_q_heads} * desc.head_dim_qk;
  CudaMemory row(device.id, 4 * width), state(device.id, 4 * width),
      stats(device.id, 8 * int64_t{desc.num_q_heads}),
      counters(device.id, kAttentionWorkspaceBytes);
  CudaMemory sums(device.id,
                  static_cast<int64_t>(attention_sums_bytes(desc, config)) * desc.num_q_heads);
  CudaMemory arrived(device.id, LaunchWords::kPhaseWords * sizeof(uint32_t));
  desc.batch = 1;
  QTensor q;
  q.q = row.data();
  q.o = row.data() + 2 * width;
  q.state_o = state.data();
  q.state_l = reinterpret_cast<float*>(stats.data());
  q.state_m = q.state_l + desc.num_q_heads;
  q.q_stride = q.o_stride = q.state_stride = {width, width, desc.head_dim_qk};
  q.row_stride = {desc.num_q_heads, desc.num_q_heads, 1};
  q.length = 1;
  q.kv_end = 1;
  KvTensor kv;
  kv.k = kv.v = row.data();
  kv.k_stride = kv.v_stride = q.q_stride;
  kv.length = 1;
  kv.stage = config.form == HopperForm::kArriving ? 1 : 0;  // stage 1 is present
  AttentionArrivals arrivals{reinterpret_cast<uint32_t*>(arrived.data()), sums.data(),
                             static_cast<size_t>(sums.bytes())};
  const OwnedStream stream = make_stream();
  check_cuda(cudaMemcpyAsync(arrivals.arrived, &kv.stage, sizeof(kv.stage), cudaMemcpyDefault,
                             stream.get()),
             "a stage");
  attention(desc, {{&q, 1}, {&kv, 1}}, config, counters.data(), stream.get(), 0, &arrivals);
  check_cuda(cudaStreamSynchronize(stream.get()), "load of an attention kernel");
}

AttentionDesc desc_of(const SegmentAttentionAttrs& attrs, const ValueType& q) {
  AttentionDesc desc{.dtype = q.dtype, .num_q_heads = 1, .num_kv_heads = 1};
  desc.head_dim_qk = desc.head_dim_v = static_cast<int>(q.shape[3]);
  desc.scale = attrs.scale;
  return desc;
}

// Whether tensor cores take the call; a plain kernel takes all others.
bool is_fast(const AttentionDesc& desc) {
  try {
    verify(desc, {});
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported) throw;
    return false;
  }
}

// Whether a single launch takes the call, and waits for the phases inside.
bool waits_inside(const SegmentAttentionAttrs& attrs, const ValueType& q) {
  const int last_keys = attrs.kv.empty() ? 0 : attrs.kv.back().phase;
  return !attrs.carries_state() && attrs.last_phase() == last_keys && is_fast(desc_of(attrs, q)) &&
         attrs.parts() <= 1 && parts_of(attrs).size() == 1;
}

bool has_state_rows(const OpCall& call) {
  return std::ranges::all_of(call.attrs<SegmentAttentionAttrs>().q, [&](const ops::QSegment& s) {
    return s.state_row + s.rows <= call.in[0].shape[1];
  });
}

// Size of the sums that a call may leave at once, with the largest tiles.
int64_t bytes_of_sums(const SegmentAttentionAttrs& attrs, const ValueType& q, int num_sms) {
  if (attrs.last_phase() == 0 || !waits_inside(attrs, q)) return 0;
  int64_t units = 0;
  for (const ops::QSegment& s : attrs.q) units += round_up(s.rows, 64 * kMaxTileUnits) / 64;
  const int more = 1 + attrs.parts();  // of each part
  units = units * attrs.heads * q.shape[0] + int64_t{num_sms} * kMaxTileUnits * more;
  const int64_t unit = int64_t{128} * 16 * sum_units(static_cast<int>(q.shape[3]));
  return units * (unit + static_cast<int64_t>(kHeldItemBytes));
}

// For calls that wait for inputs inside.
AttentionArrivals arrivals_of(const LaunchArgs& args, int64_t sums_bytes) {
  if (args.phases() == nullptr) return {};
  // Longer than the awaited pulls' deadline: errors of pulls say more about the cause.
  const auto& memory = dynamic_cast<fabric::SymmetricMemory&>(*args.arena);
  const auto& endpoint = dynamic_cast<fabric::DeviceEndpoint&>(memory.endpoint());
  return {args.phases(), args.workspace, static_cast<size_t>(sums_bytes),
          2 * static_cast<uint32_t>(endpoint.verbs().deadline_ns / 1'000'000), args.words->asked()};
}

BoundKernel bind_plain_segments(const LaunchArgs& args) {
  load_plain_segments(args.call.in[0].dtype);
  return [&call = args.call, parts = parts_of(args.call.attrs<SegmentAttentionAttrs>()),
          owners = Owners(args), whole = args.whole_batch](LaunchContext context) {
    const int64_t sequences = sequences_of(call, call.in[0], whole);
    owners.count(sequences);
    for (const Part& part : parts) {
      const Call made = make_call(call, part, sequences, owners);
      plain_segments(made.desc, made.params(), context);
      context.pdl = true;
    }
  };
}

// Shared by the launches of a GPU.
struct Shared {
  Scratch scratch;
  std::set<std::string> loaded;  // kernels
};

BoundKernel bind_segment_attention(const LaunchArgs& args, Shared& shared) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<SegmentAttentionAttrs>();
  if (attrs.dual) {
    BRAID_CHECK(has_state_rows(call), "dual chunks without a state");
    return bind_dual_segments(
        args, [&](const LaunchArgs& part) { return bind_segment_attention(part, shared); });
  }
  const ValueType q{call.in[kQ].dtype, call.in[kQ].shape};
  if (!is_fast(desc_of(attrs, q))) return bind_plain_segments(args);
  const bool phases = args.phases() != nullptr;
  const AttentionArrivals arrivals =
      arrivals_of(args, bytes_of_sums(attrs, q, args.device.num_sms));
  std::byte* counters = shared.scratch.get(args, kAttentionWorkspaceBytes);
  struct Bound {
    Part part;
    SparingConfig choice;
  };
  std::vector<Bound> bound;
  const Owners owners(args);
  const bool spares = args.beside.communicates || (args.beside.pulls && !args.by_stream);
  for (const Part& part : parts_of(attrs)) {
    BRAID_CHECK((part.first && part.last) || has_state_rows(call), "a cut call without a state");
    const Call made = make_call(call, part, call.in[0].shape[0], owners, phases);
    const AttentionDevice device = attention_device(args.device);
    const Bound b = spares
                        ? Bound{part, choose_beside_one_warp(made.desc, made.params(), device)}
                        : Bound{part, {choose(made.desc, made.params(), device), device.num_sms}};
    const std::string kernel = fmt::format("{} {} {}", name(made.desc.dtype), made.desc.head_dim_qk,
                                           to_string(b.choice.config));
    if (shared.loaded.insert(kernel).second) load_kernel(made.desc, b.choice.config, args.device);
    bound.push_back(b);
  }
  const bool kernel_asks = std::ranges::any_of(
      attrs.q, [](const ops::QSegment& s) { return s.part != kLastPart && s.rows > 0; });
  return [&call, bound, counters, owners, phases, arrivals, words = args.words, kernel_asks,
          whole = args.whole_batch](const LaunchContext& context) {
    const int64_t sequences = sequences_of(call, call.in[0], whole);
    // Transfers that no kernel asks for, the stream asks for.
    if (arrivals.early != nullptr && (sequences == 0 || !kernel_asks)) words->write(context.stream);
    if (sequences == 0) return;
    owners.count(sequences);
    for (const Bound& b : bound) {
      const Call made = make_call(call, b.part, sequences, owners, phases);
      attention(made.desc, made.params(), b.choice.config, counters, context.stream,
                b.choice.num_sms, &arrivals);
    }
  };
}

KernelInfo segment_attention_info(const Op& op, TypeList in, TypeList, const DeviceInfo& device) {
  const auto& attrs = op.attrs.as<SegmentAttentionAttrs>();
  const AttentionDesc desc = desc_of(attrs, in[kQ]);
  if (!is_fast(desc)) verify_plain_segments(desc);
  if (attrs.dual) return {"segment_attention.chunks", dual_segments_bytes(op, in)};
  if (is_fast(desc)) {
    return {.name = "segment_attention.cuda",
            .workspace_bytes = bytes_of_sums(attrs, in[kQ], device.num_sms),
            .waits_inside = device.compute_capability == 90 && waits_inside(attrs, in[kQ])};
  }
  return {"segment_attention.plain", 0};
}

BoundKernel bind_buffers(const LaunchArgs&) {
  return [](const LaunchContext&) {};
}

}  // namespace

void add_segment_attention_kernels(KernelTable& table) {
  const auto shared = std::make_shared<Shared>();
  table.add(ops::kSegmentAttention.kind,
            {.info = segment_attention_info, .bind = [shared](const LaunchArgs& args) {
               return bind_segment_attention(args, *shared);
             }});
  table.add(ops::kBuffers.kind, simple_kernel(ops::kBuffers.kind, bind_buffers));
}

}  // namespace braid::cuda
