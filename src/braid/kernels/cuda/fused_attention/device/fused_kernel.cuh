#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_attend.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_parts.cuh"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// The kernel of a fused attention block for one token. Each CTA of a cluster makes some rows of its
// KV head's q, k and v and gets all rows by an exchange. SplitToken: each CTA attends to a part of
// the keys and gets all parts by a second exchange. SplitHead: each CTA has a part of the head.
// Several clusters of a KV head pass on rows and merged parts as tagged words in memory.
// With a projection, CTAs pass attention's result on as tagged words in memory, and each CTA makes
// some outputs.
namespace braid::cuda {

template <int kD, int kGroup, ExchangePath kPath, FusedSplit kSplit>
class FusedBlock {
  static constexpr int kPieceRow = kD + 4;

 public:
  __device__ FusedBlock(const FusedArgs& a, uint8_t* smem, const FusedLayout& layout, uint32_t tag)
      : a_(a),
        plan_(a, kD),
        smem_(smem),
        layout_(layout),
        ring_(smem + layout.ring, reinterpret_cast<uint64_t*>(smem + layout.barriers), a.slots),
        tag_(tag),
        thread_(threadIdx.x),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
        exchange_(block_exchange<kPath>(a, smem + layout.inbox, a.inbox_bytes,
                                        smem + layout.arrivals, tag + 1)) {}

  // The other warps of the CTA arrive and open, too.
  __device__ void arrive() const { exchange_.arrive(); }

  __device__ void run() {
    load_x();
    put_turns(a_, __ldg(a_.position), floats(layout_.turns), thread_, kFusedThreads);
    sync();
    multiply(plan_.end_of_rows, plan_.rows.form);
    sync();
    put_rows();
    exchange_.open();
    if (a_.parts == 1) {
      make_heads(
          exchange_.gather(floats(layout_.part), 2 * plan_.rows.most(), ExchangeForm::direct));
    } else {
      uint8_t* rows = smem_ + layout_.pieces;
      set_flow(a_.in_flight_words);
      load_rows(a_, kD, plan_.place.head, 0, 1, rows, tag_ + 1);
      sync();
      set_flow(a_.in_flight);
      make_heads(rows);
    }
    sync();
    if constexpr (kSplit == FusedSplit::head) {
      attend_divided();
      if (a_.outputs > 0) set_flow(a_.in_flight_words);
    } else {
      attend();
      sync();
      put_part();
      if (a_.outputs > 0 || a_.parts > 1) set_flow(a_.in_flight_words);
      const auto* parts = reinterpret_cast<const float*>(
          exchange_.gather(floats(layout_.part), a_.group * kPieceRow * 4, ExchangeForm::direct));
      if (a_.parts == 1) {
        put_attended(parts);
      } else {
        put_part_of_head<kD>(a_, plan_.place, 0, 0, a_.group, parts, part_stride(), tag_ + 1);
        put_head<kD>(a_, plan_.place, 1, tag_ + 1);
      }
    }
    if (a_.outputs == 0) return;
    load_words();
    sync();
    set_flow(a_.in_flight);
    multiply(plan_.end_of_out, plan_.out_form);
    sync();
    put_outputs();
  }

  // Tags that this launch used, equal in all CTAs.
  __device__ uint32_t tags() const {
    const int rounds = kSplit == FusedSplit::head ? plan_.num_units / kFusedWarps + 1 : 0;
    return kFusedTags + rounds;
  }

 private:
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(smem_ + at); }
  __device__ static void sync() { ptx::named_barrier_sync(1, kFusedThreads); }
  __device__ void set_flow(int copies) const {
    if (thread_ == 0) *reinterpret_cast<volatile int*>(smem_ + layout_.flow) = copies;
  }

  // x is (a + b) times the norm's weights; its scale waits until the end.
  __device__ void load_x() const {
    auto* x = reinterpret_cast<uint32_t*>(smem_ + layout_.x);
    float squares = 0;
#pragma unroll 4
    for (int i = thread_; i < a_.width / 4; i += kFusedThreads) {
      const float4 s = load_sum(a_, i);
      const float4 w = __ldg(reinterpret_cast<const float4*>(a_.norm_w) + i);
      squares += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
      x[relay_x_word(2 * i)] = ptx::pack<__nv_bfloat16>(s.x * w.x, s.y * w.y);
      x[relay_x_word(2 * i + 1)] = ptx::pack<__nv_bfloat16>(s.z * w.z, s.w * w.w);
      if (a_.sum != nullptr && blockIdx.x == 0) reinterpret_cast<float4*>(a_.sum)[i] = s;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(0xffffffff, squares, d);
    if (lane_ == 0) floats(layout_.squares)[warp_] = squares;
  }

  // Sums of this warp's slots before `end`, to [rows, parts].
  __device__ void multiply(int end, const FusedRows& form) {
    const int begin = end == plan_.end_of_rows ? 0 : plan_.end_of_keys;
    const uint8_t* x = smem_ + layout_.x;
    float* sums = floats(layout_.sums);
#pragma unroll 1
    while (ring_.at() < end) {
      const int i = ring_.at() - begin;
      const uint8_t* slot = ring_.wait();
      const int part = i % form.parts;
      const int bytes = min(form.row_bytes - part * kFusedSlotBytes, kFusedSlotBytes);
      float* to = sums + i / form.parts * form.rows * form.parts + part;
#pragma unroll 1
      for (int r = 0; r < form.rows; ++r) {
        float sum = product(slot + r * bytes, x + part * kFusedSlotBytes, bytes / 16);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        if (lane_ == 0) to[r * form.parts] = sum;
      }
      ring_.release();
    }
  }
  // This lane's share of w * x, over `lines` lines with 16 bytes.
  __device__ float product(const uint8_t* w, const uint8_t* x, int lines) const {
    constexpr int kTogether = 4;
    const auto* ws = reinterpret_cast<const uint4*>(w);
    const auto* xs = reinterpret_cast<const uint4*>(x);
    RelayDot dot;
#pragma unroll 1
    for (int first = lane_; first - lane_ < lines; first += kTogether * 32) {
      uint4 its_w[kTogether], its_x[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const bool is_there = first + 32 * j < lines;
        its_w[j] = is_there ? ws[first + 32 * j] : uint4{};
        its_x[j] = is_there ? xs[first + 32 * j] : uint4{};
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) dot.add(j, its_w[j], its_x[j]);
    }
    return dot.share();
  }
  __device__ float sum_of(int row, int parts) const {
    const float* sums = floats(layout_.sums) + row * parts;
    float all = 0;
    for (int i = 0; i < parts; ++i) all += sums[i];
    return all;
  }

  // Passes on this CTA's rows of q, k and v.
  __device__ void put_rows() const {
    const float scale = norm_scale(a_, floats(layout_.squares));
    auto* to = reinterpret_cast<__nv_bfloat16*>(smem_ + layout_.part);
    for (int i = thread_; i < plan_.num_rows; i += kFusedThreads) {
      const FusedHeadRow at(plan_.place.head, plan_.first_row + i, a_.group * kD, kD);
      const float* biases = a_.bias[at.which];
      const float bias = biases == nullptr ? 0.f : __ldg(biases + at.row);
      to[i] = __float2bfloat16_rn(sum_of(i, plan_.rows.form.parts) * scale + bias);
      if (a_.parts > 1) {
        put_row(a_, kD, plan_.place.head, 0, plan_.first_row + i, to[i], tag_ + 1);
      }
    }
  }

  // Heads of q and the newest key, normed and turned by their position, and the newest value.
  // `gathered`: rows of all CTAs, side by side with several parts.
  __device__ void make_heads(const uint8_t* gathered) const {
    const int stride = (2 * plan_.rows.most() + 15) / 16 * 16;
    const int slot = __ldg(a_.slot);
    const bool writes = plan_.place.member == 0 && slot >= 0 && slot < a_.num_slots;
#pragma unroll 1
    for (int role = warp_; role < a_.group + 2; role += kFusedWarps) {
      const auto raw = [&](int e) {
        const int row = role * kD + e;
        if (a_.parts > 1) {
          return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(gathered)[row]);
        }
        const int rank = plan_.rows.groups.owner(row / plan_.rows.form.rows);
        const int i = row - plan_.rows.begin(rank);
        return __bfloat162float(
            reinterpret_cast<const __nv_bfloat16*>(gathered + rank * stride)[i]);
      };
      const bool is_q = role<a_.group, is_v = role> a_.group;
      const float* norm = is_q ? a_.q_norm : is_v ? nullptr : a_.k_norm;
      turn_head<kD>(
          raw, norm, a_.qk_eps, is_v ? 0 : a_.pairs, a_.interleaved, floats(layout_.turns),
          [&](int e, float x) {
            const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
            if (is_q) {
              floats(layout_.q)[role * kD + e] =
                  __bfloat162float(rounded) * (a_.scale * ptx::kLog2E);
              return;
            }
            reinterpret_cast<__nv_bfloat16*>(smem_ + layout_.fresh)[is_v * kD + e] = rounded;
            if (writes) {
              (is_v ? a_.cache_v
                    : a_.cache_k)[(int64_t{slot} * a_.kv_heads + plan_.place.head) * kD + e] =
                  rounded;
            }
          });
    }
  }

  __device__ void attend() {
    FusedAttend<kD, kGroup> attend(floats(layout_.q), kD, a_.group);
#pragma unroll 1
    while (ring_.at() < plan_.end_of_keys) {
      const int unit = plan_.keys.first_unit + plan_.first_unit + ring_.at() - plan_.end_of_rows;
      attend.add(ring_.wait(), smem_ + layout_.fresh, unit * relay_keys(kD), plan_.keys);
      ring_.release();
    }
    attend.put(floats(layout_.pieces) + warp_ * a_.group * kPieceRow);
  }

  // SplitHead: this CTA has some elements of all keys. For every kFusedWarps units the cluster adds
  // up scores; weights and results need no exchange.
  __device__ void attend_divided() {
    if constexpr (kD == 128) {
      if (plan_.elems == 64) return attend_elems<64>();
    }
    plan_.elems == 32 ? attend_elems<32>() : attend_elems<16>();
  }
  template <int kElems>
  __device__ __forceinline__ void attend_elems() {
    constexpr int kKeys = relay_keys(kElems);
    const int each = a_.group * kKeys;  // scores of a unit
    const uint8_t* fresh = smem_ + layout_.fresh + 2 * plan_.first_elem;
    float* own = floats(layout_.scores);
    float* all = own + kFusedWarps * each;
    FusedAttend<kElems, kGroup> attend(floats(layout_.q) + plan_.first_elem, kD, a_.group);
#pragma unroll 1
    for (int round = plan_.end_of_rows; round < plan_.end_of_keys; round += kFusedWarps) {
      const int units = min(plan_.end_of_keys - round, kFusedWarps), mine = ring_.at() - round;
      const int first = (plan_.keys.first_unit + ring_.at() - plan_.end_of_rows) * kKeys;
      const uint8_t* slot = mine < units ? ring_.wait() : nullptr;
      if (mine < units) {
        attend.put_scores(slot, fresh, plan_.keys.length - 1 - first, own + mine * each);
      }
      exchange_.template reduce<ExchangeSum>(own, all, units * each, a_.score_form);
      if (mine < units) {
        attend.add_scored(all + mine * each, slot, fresh + 2 * kD, first, plan_.keys);
        ring_.release();
      }
    }
    attend.put(floats(layout_.pieces) + warp_ * a_.group * (kElems + 4));
    sync();
    for (int i = thread_; i < a_.group * kElems / 2; i += kFusedThreads) {
      const int g = 2 * i / kElems, e = plan_.first_elem + 2 * i % kElems;
      put_pair(
          a_, ((plan_.place.head * a_.group + g) * kD + e) / 2,
          attended_pair<kElems>(floats(layout_.pieces), a_.group * (kElems + 4), kFusedWarps, i),
          tag_ + 1);
    }
  }

  // Stores this CTA's part of attention, merged over all warps.
  __device__ void put_part() const {
    for (int i = thread_; i < a_.group * kD; i += kFusedThreads) {
      const int g = i / kD, e = i % kD;
      put_merged<kD>(
          floats(layout_.part), g, e,
          MergedParts::of<kD>(floats(layout_.pieces), a_.group * kPieceRow, kFusedWarps, g, e));
    }
  }

  __device__ int part_stride() const {
    return (a_.group * kPieceRow * 4 + 15) / 16 * 4;
  }

  // Stores this CTA's share of attention's result.
  __device__ void put_attended(const float* parts) const {
    const int pairs = a_.group * kD / 2;
    const Shares shares(pairs, a_.cluster);
    const int end = shares.end(plan_.place.rank);
    for (int i = shares.begin(plan_.place.rank) + thread_; i < end; i += kFusedThreads) {
      const uint32_t pair = attended_pair<kD>(parts, part_stride(), a_.cluster, i);
      put_pair(a_, plan_.place.head * pairs + i, pair, tag_ + 1);
    }
  }

  // Loads attention's result of all heads. Threads past the end read the last thread's words.
  __device__ void load_words() const {
    constexpr int kTogether = 4;
    const auto* from = reinterpret_cast<const uint4*>(a_.words);
    auto* x = reinterpret_cast<uint32_t*>(smem_ + layout_.x);
    const int last = a_.kv_heads * a_.group * kD / 4 - 1;
#pragma unroll 1
    for (int first = thread_; first <= last; first += kTogether * kFusedThreads) {
      const auto place = [&](int j) { return min(first + j * kFusedThreads, last); };
      uint4 v[kTogether];
      wait_words(v, tag_ + 1, [&](int j) { return from + place(j); });
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        x[relay_x_word(2 * place(j))] = v[j].x;
        x[relay_x_word(2 * place(j) + 1)] = v[j].z;
      }
    }
  }

  __device__ void put_outputs() const {
    for (int i = thread_; i < plan_.num_out; i += kFusedThreads) {
      const int row = plan_.first_out + i;
      const float bias = a_.bias[3] == nullptr ? 0.f : __ldg(a_.bias[3] + row);
      a_.out[row] = __float2bfloat16_rn(sum_of(i, plan_.out_form.parts) + bias);
    }
  }

  const FusedArgs& a_;
  const FusedPlan plan_;
  uint8_t* const smem_;
  const FusedLayout& layout_;
  FusedRing ring_;
  const uint32_t tag_;
  const int thread_;
  const int warp_;
  const int lane_;
  ClusterExchange<kPath> exchange_;
};

template <int kD, int kGroup, ExchangePath kPath, FusedSplit kSplit = FusedSplit::token>
__global__ void __launch_bounds__(kFusedBlock, 1)
    fused_kernel(const __grid_constant__ FusedArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t smem[];
  const FusedLayout layout(a.slots, a.inbox_bytes, a.x_elems, a.num_sums, a.group, kD,
                           FusedHeadRows(a.width, a.group, kD, a.cluster * a.parts).most(),
                           a.num_scores);
  ptx::grid_launch_dependents();
  if (__ldg(a.rows) == 0) return;
  auto* barriers = reinterpret_cast<uint64_t*>(smem + layout.barriers);
  if (threadIdx.x < 2 * a.slots) ptx::mbarrier_init(barriers + threadIdx.x, 1);
  if (threadIdx.x == 0) *reinterpret_cast<volatile int*>(smem + layout.flow) = a.in_flight;
  ptx::fence_barrier_init();
  __syncthreads();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  using Exchange = ClusterExchange<kPath>;
  if (warp >= kFusedWarps) {
    Exchange::arrive();
    FusedProducer<kD>(a, smem, layout, warp - kFusedWarps).run();
    Exchange::open();
    return;
  }
  const uint32_t tag = __ldcg(a.control);
  FusedBlock<kD, kGroup, kPath, kSplit> block(a, smem, layout, tag);
  block.arrive();
  ptx::grid_dependency_wait();
  block.run();
  ptx::named_barrier_sync(1, kFusedThreads);
  leave_tag(a.control, tag + block.tags());
#endif
}

}  // namespace braid::cuda
