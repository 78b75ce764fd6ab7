// Binds segment attention, and the one-sided ops over symmetric memory to the fabric's verbs.
#include <atomic>
#include <cstring>
#include <optional>

#include "braid/fabric/collectives/barrier.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cpu/attention/segments.h"
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/ops/sequence.h"

namespace braid::cpu {
namespace {

constexpr size_t kQ = ops::SegmentAttentionAttrs::kFirstQ;

// Element strides of a packed [B, L, heads, D] view.
struct Strides {
  explicit Strides(const TensorView& x)
      : row(x.shape[2] * x.shape[3]), batch(x.shape[1] * row), head(x.shape[3]) {}
  int64_t at(int64_t b, int64_t r, int64_t h) const { return b * batch + r * row + h * head; }
  int64_t row, batch, head;
};

// Of a thread; its end is 64-byte aligned too.
int64_t scratch_bytes(int64_t head_dim) {
  return round_up(segment_scratch_floats(head_dim) * static_cast<int64_t>(sizeof(float)), 64);
}

fabric::SymmetricMemory& symmetric(const LaunchArgs& args) {
  auto* memory = dynamic_cast<fabric::SymmetricMemory*>(args.arena);
  BRAID_CHECK(memory != nullptr, "{}: the arena is no symmetric memory", args.call.op->def->kind);
  return *memory;
}

// A call's work: (sequence, block of a Q segment, head), each by one thread.
class SegmentAttention {
 public:
  SegmentAttention(const LaunchArgs& args, Isa isa)
      : call_(args.call),
        a_(args.call.attrs<ops::SegmentAttentionAttrs>()),
        workspace_(args.workspace),
        block_(pick_isa(isa, BRAID_EACH_ISA(segment_attention_block))),
        keys_(static_cast<size_t>(args.threads)) {
    for (auto& keys : keys_) keys.resize(a_.kv.size());
    const auto stored = [](const ops::QSegment& s) { return s.owner >= 0; };
    if (a_.finalize && std::ranges::any_of(a_.q, stored)) owners_.emplace(args);
  }

  void run(const Team& team) {
    if (owners_ && team.index == 0) count_stores();
    int64_t unit = 0;
    for (int64_t b = 0; b < call_.extents().sequence; ++b) {
      for (const ops::QSegment& s : a_.q) {
        for (int64_t row = 0; row < s.rows; row += kSegmentRows) {
          for (int64_t h = 0; h < a_.heads; ++h) {
            if (unit++ % team.count == team.index) run_block(b, s, row, h, team.index);
          }
        }
      }
    }
  }

 private:
  void run_block(int64_t b, const ops::QSegment& s, int64_t row, int64_t h, int thread) {
    const TensorView& q = call_.in[kQ + static_cast<size_t>(s.q)];
    const TensorView& state = call_.in[0];
    const Strides q_at(q), state_at(state);
    const int64_t D = state.shape[3], heads = state.shape[2];
    const int64_t stat = (b * state.shape[1] + s.state_row + row) * heads + h;
    auto& keys = keys_[static_cast<size_t>(thread)];
    for (int i = s.kv_begin; i < s.kv_end; ++i) keys[static_cast<size_t>(i)] = keys_of(b, i, h);
    SegmentBlock block{.q = q.as<const float>() + q_at.at(b, s.row + row, s.head + h),
                       .q_stride = q_at.row,
                       .rows = std::min(kSegmentRows, s.rows - row),
                       .position = s.position + row,
                       .head_dim = D,
                       .scale = a_.scale,
                       .window_left = a_.window_left,
                       .window_right = a_.window_right,
                       .keys = std::span(keys).subspan(static_cast<size_t>(s.kv_begin),
                                                       static_cast<size_t>(s.kv_end - s.kv_begin)),
                       .state_o = state.as<float>() + state_at.at(b, s.state_row + row, h),
                       .state_stride = state_at.row,
                       .state_l = call_.in[1].as<float>() + stat,
                       .state_m = call_.in[2].as<float>() + stat,
                       .stat_stride = heads,
                       .load_state = a_.load_state,
                       .scratch = reinterpret_cast<float*>(workspace_ + thread * scratch_bytes(D))};
    if (a_.finalize) {
      const TensorView& out = call_.in[3 + static_cast<size_t>(s.out)];
      const Strides out_at(out);
      std::byte* begin = out.data;
      if (s.owner >= 0) begin = owners_->memory.on_peer(begin, s.owner);
      block.out = reinterpret_cast<float*>(begin) + out_at.at(b, s.out_row + row, s.out_head + h);
      block.out_stride = out_at.row;
    }
    block_(block);
  }

  void count_stores() const {
    fabric::Endpoint& e = owners_->memory.endpoint();
    for (const ops::QSegment& s : a_.q) {
      if (s.owner < 0) continue;
      const int64_t floats = call_.extents().sequence * s.rows * a_.heads * call_.in[0].shape[3];
      e.traffic().add(owners_->tag, fabric::Verb::put, e.link(e.rank(), s.owner),
                      bytes_of(DType::f32, floats));
    }
  }

  SegmentKeys keys_of(int64_t b, int segment, int64_t h) const {
    const ops::KvSegment& s = a_.kv[static_cast<size_t>(segment)];
    const size_t pair = kQ + static_cast<size_t>(a_.num_q + 2 * s.kv);
    const Strides at(call_.in[pair]);
    const int64_t offset = at.at(b, s.row, s.head + (h + a_.head_offset) / a_.group);
    return {.k = call_.in[pair].as<const float>() + offset,
            .v = call_.in[pair + 1].as<const float>() + offset,
            .stride = at.row,
            .rows = s.rows,
            .position = s.position};
  }

  const OpCall& call_;
  const ops::SegmentAttentionAttrs& a_;
  std::byte* const workspace_;
  void (*const block_)(const SegmentBlock&);
  std::vector<std::vector<SegmentKeys>> keys_;  // [threads, KV segments]
  struct Owners {
    explicit Owners(const LaunchArgs& args)
        : memory(symmetric(args)), tag(memory.endpoint().tag("store")) {}
    fabric::SymmetricMemory& memory;
    fabric::Tag tag;
  };
  std::optional<Owners> owners_;  // of segments whose rows are others'
};

Kernel segment_attention_kernel(Isa isa) {
  return {.info =
              [isa](const Op&, TypeList in, TypeList, int threads) {
                for (size_t i = kQ; i < in.size(); ++i) {
                  if (in[i].dtype == DType::f32) continue;
                  fail(ErrorCode::kUnsupported,
                       "segment_attention: {} values on the CPU, wanted f32", name(in[i].dtype));
                }
                return KernelInfo{fmt::format("segment_attention.{}", name(isa)),
                                  threads * scratch_bytes(in[0].shape[3])};
              },
          .bind =
              [isa](const LaunchArgs& args) {
                const auto bound = std::make_shared<SegmentAttention>(args, isa);
                return [bound](const Team& team) { bound->run(team); };
              }};
}

// What a pull or a push says to the fabric for one move of one sequence.
struct Transfer {
  int64_t src = 0;  // bytes from the source view's begin
  int64_t dst = 0;
  int64_t src_batch = 0;
  int64_t dst_batch = 0;
  fabric::Block block;
};

Transfer transfer_of(const OpCall& call, const ops::Move& move) {
  const TensorView& src = call.in[static_cast<size_t>(move.src)];
  const TensorView& dst = call.in[static_cast<size_t>(move.dst)];
  const Strides s(src), d(dst);
  const int64_t element = bytes_of(src.dtype, 1);
  Transfer t{.src = s.at(0, move.src_row, move.src_head) * element,
             .dst = d.at(0, move.dst_row, move.dst_head) * element,
             .src_batch = s.batch * element,
             .dst_batch = d.batch * element,
             .block = {.row_bytes = move.heads * src.shape[3] * element,
                       .rows = move.rows,
                       .dst_stride = d.row * element,
                       .src_stride = s.row * element}};
  if (t.block.row_bytes == t.block.dst_stride && t.block.row_bytes == t.block.src_stride) {
    t.block = {.row_bytes = t.block.bytes()};
  }
  return t;
}

// Every transfer of a launch is under way before the first is waited for.
BoundKernel bind_pull(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("pull");
  return [&call, &memory, &endpoint, tag](const Team& team) {
    if (team.index != 0) return;
    std::vector<fabric::Transfer> pending;
    for (const ops::Move& move : call.attrs<ops::MoveAttrs>().moves) {
      const Transfer t = transfer_of(call, move);
      const auto src = memory.place(call.in[static_cast<size_t>(move.src)].data);
      std::byte* dst = call.in[static_cast<size_t>(move.dst)].data;
      for (int64_t b = 0; b < call.extents().sequence; ++b) {
        pending.push_back(endpoint.get_async(dst + t.dst + b * t.dst_batch,
                                             src + (t.src + b * t.src_batch), move.peer, t.block,
                                             tag));
      }
    }
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

fabric::SymPtr<fabric::Signal> counter(fabric::SymmetricMemory& memory, const TensorView& arrivals,
                                       int from) {
  return memory.place(arrivals.row(from)).as<fabric::Signal>();
}

BoundKernel bind_push(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("push");
  const std::vector<int> peers = call.attrs<ops::MoveAttrs>().peers();
  return [&call, &memory, &endpoint, tag, peers](const Team& team) {
    if (team.index != 0) return;
    std::vector<fabric::Transfer> pending;
    for (const ops::Move& move : call.attrs<ops::MoveAttrs>().moves) {
      const Transfer t = transfer_of(call, move);
      const std::byte* src = call.in[static_cast<size_t>(move.src)].data;
      const auto dst = memory.place(call.in[static_cast<size_t>(move.dst)].data);
      for (int64_t b = 0; b < call.extents().sequence; ++b) {
        pending.push_back(endpoint.put_async(dst + (t.dst + b * t.dst_batch), move.peer,
                                             src + t.src + b * t.src_batch, t.block, tag));
      }
    }
    // By the same thread after its puts: who sees the count sees the data.
    for (int peer : peers) {
      endpoint.signal(counter(memory, call.in[0], endpoint.rank()), peer, fabric::SignalOp::add, 1,
                      tag);
    }
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

BoundKernel bind_sync(const LaunchArgs& args, fabric::Endpoint& endpoint, const MeshComms& comms) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::SyncAttrs>();
  fabric::SymmetricMemory& memory = symmetric(args);
  fabric::Comm* comm = a.ranks > 1 ? &comms.at(a.axis, args.stream) : nullptr;
  BRAID_CHECK(comm == nullptr || comm->size() == a.ranks, "sync of {} ranks on a group of {}",
              a.ranks, comm->size());
  const fabric::Tag tag = endpoint.tag("sync");
  return [&call, &a, &memory, &endpoint, comm, tag](const Team& team) {
    if (team.index == 0) {
      for (int output : a.opened_arrivals) {
        const TensorView& counters = call.out[static_cast<size_t>(output)];
        for (int64_t from = 0; from < counters.shape[0]; ++from) {
          auto* signal = reinterpret_cast<fabric::Signal*>(counters.row(from));
          std::atomic_ref<uint64_t>(signal->value).store(0, std::memory_order_seq_cst);
        }
      }
    }
    if (comm != nullptr) fabric::barrier(*comm, team);
    if (team.index != 0) return;
    for (int from = 0; from < static_cast<int>(a.arrivals.size()); ++from) {
      const auto expected = static_cast<uint64_t>(a.arrivals[static_cast<size_t>(from)]);
      if (expected == 0) continue;
      endpoint.wait(counter(memory, call.in[ops::kSyncArrivals], from), expected,
                    {.tag = tag, .from = from});
    }
  };
}

// The live rows lie alike in both views: tokens of a shard, and rows of its one sequence.
BoundKernel bind_reshape(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const TensorView& x = call.in[0];
  const int64_t row_bytes = x.bytes() / (x.shape.rank() == 4 ? x.shape[1] : x.shape[0]);
  return [&call, row_bytes](const Team& team) {
    const Range share = team.share(call.extents().shard * row_bytes);
    std::memcpy(call.out[0].data + share.begin, call.in[0].data + share.begin,
                static_cast<size_t>(share.size()));
  };
}

// One token's K or V of all heads, between the cache's dtype and another.
void copy_kv(const TensorView& from, int64_t i, const TensorView& to, int64_t j) {
  const int64_t heads = from.shape[2], n = heads * from.shape[3];
  const std::byte* src = from.row(i * heads);
  std::byte* dst = to.row(j * heads);
  if (from.dtype == to.dtype) {
    std::memcpy(dst, src, static_cast<size_t>(bytes_of(from.dtype, n)));
  } else if (to.dtype == DType::f32) {
    dequantize_row(from.dtype, src, reinterpret_cast<float*>(dst), n);
  } else {
    quantize_row(to.dtype, reinterpret_cast<const float*>(src), dst, n);
  }
}

BoundKernel bind_kv_read(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  return [&call](const Team& team) {
    const auto* slots = call.in[0].as<const int32_t>();
    const Range share = team.share(call.in[0].shape[0]);
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (slots[i] < 0) continue;
      for (size_t v : {0u, 1u}) copy_kv(call.in[1 + v], slots[i], call.out[v], i);
    }
  };
}

BoundKernel bind_kv_write(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  return [&call](const Team& team) {
    const auto* slots = call.in[2].as<const int32_t>();
    const Range share = team.share(call.in[2].shape[0]);
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (slots[i] < 0) continue;
      for (size_t v : {0u, 1u}) copy_kv(call.in[v], i, call.in[3 + v], slots[i]);
    }
  };
}

BoundKernel bind_pick_rows(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const auto bytes = static_cast<size_t>(bytes_of(call.in[0].dtype, call.in[0].cols()));
  return [&call, bytes](const Team& team) {
    const auto* rows = call.in[1].as<const int32_t>();
    const Range share = team.share(call.extents().row);
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (rows[i] < 0) {
        std::memset(call.out[0].row(i), 0, bytes);
      } else {
        std::memcpy(call.out[0].row(i), call.in[0].row(rows[i]), bytes);
      }
    }
  };
}

// Of the cache's dtype or of f32.
Kernel kv_kernel(const OpDef& def, size_t cache, Isa isa,
                 BoundKernel (*bind)(const LaunchArgs& args, Isa isa)) {
  Kernel kernel = simple_kernel(def, isa, bind);
  kernel.info = [&def, cache, isa](const Op&, TypeList in, TypeList out, int) {
    const DType rows = out.empty() ? in[0].dtype : out[0].dtype;
    if (rows != in[cache].dtype && rows != DType::f32) {
      fail(ErrorCode::kUnsupported, "{}: {} rows of a cache in {}", def.kind, name(rows),
           name(in[cache].dtype));
    }
    return KernelInfo{fmt::format("{}.{}", def.kind, name(isa)), 0};
  };
  return kernel;
}

Kernel fabric_kernel(std::function<BoundKernel(const LaunchArgs&)> bind) {
  return {.info =
              [](const Op& op, TypeList, TypeList, int) {
                return KernelInfo{fmt::format("{}.fabric", op.def->kind), 0};
              },
          .bind = std::move(bind)};
}

}  // namespace

MeshComms::MeshComms(fabric::Endpoint& endpoint, const Mesh& mesh) {
  const auto add = [&](const std::string& axis, const fabric::Group& group) {
    for (Stream stream : kStreams) {
      comms_[axis][static_cast<size_t>(stream)] = std::make_unique<fabric::Comm>(
          endpoint, group,
          fabric::CommConfig{.name = fmt::format("sp.{}.{}", axis, to_string(stream)),
                             .slot_bytes = 64});
    }
  };
  add("world", fabric::Group::world(mesh.size()));
  for (const Mesh::Axis& axis : mesh.axes()) {
    if (axis.size > 1) add(axis.name, {mesh.group(endpoint.rank(), axis.name)});
  }
}

fabric::Comm& MeshComms::at(const std::string& axis, Stream stream) const {
  const auto it = comms_.find(axis);
  BRAID_CHECK(it != comms_.end(), "no group of the axis '{}'", axis);
  return *it->second[static_cast<size_t>(stream)];
}

void add_segment_attention_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kSegmentAttention.kind, segment_attention_kernel(cap));
  add_reference_kernel(table, ops::kBuffers);
  table.add(ops::kToSequence.kind, simple_kernel(ops::kToSequence, cap, bind_reshape));
  table.add(ops::kToTokens.kind, simple_kernel(ops::kToTokens, cap, bind_reshape));
  table.add(ops::kPickRows.kind, simple_kernel(ops::kPickRows, cap, bind_pick_rows));
  table.add(ops::kKvRead.kind, kv_kernel(ops::kKvRead, 1, cap, bind_kv_read));
  table.add(ops::kKvWrite.kind, kv_kernel(ops::kKvWrite, 3, cap, bind_kv_write));
}

void add_one_sided_kernels(KernelTable& table, fabric::Endpoint& endpoint, const MeshComms& comms) {
  table.add(ops::kPull.kind, fabric_kernel([&endpoint](const LaunchArgs& args) {
              return bind_pull(args, endpoint);
            }));
  table.add(ops::kPush.kind, fabric_kernel([&endpoint](const LaunchArgs& args) {
              return bind_push(args, endpoint);
            }));
  table.add(ops::kSync.kind, fabric_kernel([&endpoint, &comms](const LaunchArgs& args) {
              return bind_sync(args, endpoint, comms);
            }));
}

}  // namespace braid::cpu
