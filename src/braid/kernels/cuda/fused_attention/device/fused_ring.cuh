#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_heads.cuh"
#include "braid/kernels/cuda/fused_attention/fused_layout.h"
#include "braid/kernels/cuda/ptx/once.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/relay/relay_steps.h"

// The ring of a fused block: weights of q, k and v, keys and values, and the output projection's
// weights come through the same slots without a pause. Slot i of the launch goes to warp i %
// kFusedWarps, and lies at i % slots. The number of slots is a multiple of the warps: a single warp
// takes all data of a place, in order.
namespace braid::cuda {

// A CTA's place: `rank` in its cluster, and `member` among all CTAs of its KV head.
struct FusedPlace {
  int head;
  int part;
  int rank;
  int member;
  int members;
  __device__ explicit FusedPlace(const FusedArgs& a) {
    const int cluster = blockIdx.x / a.cluster;
    head = cluster / a.parts;
    part = cluster % a.parts;
    rank = blockIdx.x % a.cluster;
    member = part * a.cluster + rank;
    members = a.parts * a.cluster;
  }
};

// A CTA's reads, in slots: [0, heads) are q, k and v, [heads, keys) the cache, the rest o.
struct FusedPlan {
  FusedHeadRows rows;
  FusedRows out_form;
  Shares out_groups;  // over all CTAs
  RelayKeys keys;     // for a KV head, dealt to the head's CTAs
  FusedPlace place;
  int first_row;  // first row of the head on this CTA
  int num_rows;
  int elems;  // of a key on this CTA, from first_elem on
  int first_elem;
  int unit_keys;
  int first_unit;  // first unit of the head's keys
  int num_units;
  int first_out;  // row of o
  int num_out;
  int end_of_rows;  // slots
  int end_of_keys;
  int end_of_out;

  __device__ FusedPlan(const FusedArgs& a, int head_dim)
      : rows(a.width, a.group, head_dim, a.cluster * a.parts),
        out_form(fused_rows(a.kv_heads * a.group * head_dim)),
        out_groups((a.outputs + out_form.rows - 1) / out_form.rows, gridDim.x),
        keys(__ldg(a.kv_len), a.window, 1, relay_keys(elems_of(a, head_dim)),
             a.num_scores > 0 ? 1 : a.cluster * a.parts),
        place(a) {
    first_row = rows.begin(place.member);
    num_rows = rows.end(place.member) - first_row;
    elems = elems_of(a, head_dim);
    unit_keys = relay_keys(elems);
    const int share = a.num_scores > 0 ? 0 : place.member;
    first_elem = a.num_scores > 0 ? place.rank * elems : 0;
    first_unit = keys.shares.begin(share);
    num_units = keys.shares.end(share) - first_unit;
    first_out = out_groups.begin(blockIdx.x) * out_form.rows;
    num_out = min(out_groups.end(blockIdx.x) * out_form.rows, a.outputs) - first_out;
    if (num_out < 0) num_out = 0;
    end_of_rows = num_rows / rows.form.rows * rows.form.parts;
    end_of_keys = end_of_rows + num_units;
    end_of_out = end_of_keys + (num_out + out_form.rows - 1) / out_form.rows * out_form.parts;
  }
  __device__ static int elems_of(const FusedArgs& a, int head_dim) {
    return a.num_scores > 0 ? head_dim / a.cluster : head_dim;
  }
};

// A warp's place in the ring.
class FusedRing {
 public:
  // `barriers` [2, slots]: full, empty.
  __device__ FusedRing(uint8_t* ring, uint64_t* barriers, int slots)
      : ring_(ring),
        full_(barriers),
        empty_(barriers + slots),
        slots_(slots),
        slot_(threadIdx.x / 32) {}
  // The number of this warp's next slot.
  __device__ int at() const { return at_ + static_cast<int>(threadIdx.x) / 32; }
  __device__ const uint8_t* wait() const {
    ptx::mbarrier_wait(&full_[slot_], parity_);
    return ring_ + slot_ * kFusedSlotBytes;
  }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty_[slot_]);
    at_ += kFusedWarps;
    slot_ += kFusedWarps;
    if (slot_ >= slots_) slot_ -= slots_, parity_ ^= 1;
  }

 private:
  uint8_t* const ring_;
  uint64_t* const full_;
  uint64_t* const empty_;
  const int slots_;
  int at_ = 0;
  int slot_;
  uint32_t parity_ = 0;
};

// Every kFusedProducers-th slot in the ring, for a warp that fills these; the slots' members are
// the elected lane's, always the same lane.
class FusedFeed {
 public:
  // `flow`: copies that may be under way.
  __device__ FusedFeed(uint8_t* ring, uint64_t* barriers, int slots, const int* flow, int index)
      : ring_(ring),
        full_(barriers),
        empty_(barriers + slots),
        flow_(flow),
        slots_(slots),
        at_(index),
        slot_(index),
        oldest_(index) {}

  // The number of the next slot, for all lanes behind `share`.
  __device__ int at() const { return at_; }
  __device__ uint64_t* full() const { return &full_[slot_]; }
  // The next slot, once free; `bytes` will come.
  __device__ uint8_t* take(int bytes) {
    const int most = *flow_;
    ptx::mbarrier_wait(&empty_[slot_], parity_);
    for (; flying_ >= most; --flying_) {
      ptx::mbarrier_wait(&full_[oldest_], oldest_parity_);
      step_on(oldest_, oldest_parity_);
    }
    ++flying_;
    ptx::mbarrier_arrive_expect(&full_[slot_], bytes);
    return ring_ + slot_ * kFusedSlotBytes;
  }
  __device__ void next() {
    at_ += kFusedProducers;
    step_on(slot_, parity_);
  }
  // The other lanes only count.
  __device__ void pass() { at_ += kFusedProducers; }
  // All lanes take the issuing lane's number.
  __device__ void share(bool issues) {
    __syncwarp();
    at_ = __shfl_sync(0xffffffff, at_, __ffs(__ballot_sync(0xffffffff, issues)) - 1);
  }

 private:
  __device__ void step_on(int& slot, uint32_t& parity) const {
    slot += kFusedProducers;
    if (slot >= slots_) slot -= slots_, parity ^= 1;
  }

  uint8_t* const ring_;
  uint64_t* const full_;
  uint64_t* const empty_;
  const volatile int* const flow_;
  const int slots_;
  int at_;  // over all slots
  int slot_;
  uint32_t parity_ = 1;
  int oldest_;  // slot of the oldest copy under way
  uint32_t oldest_parity_ = 0;
  int flying_ = 0;
};

// Begin of a CTA's key copies in the cache's map, and elements per key.
struct FusedKeyCopies {
  int keys;  // of a unit
  int elems;
  int column;
  int part;
};

// Brings units of keys, a slot each, up to slot `end`. Each lane looks up row_of(slot, key), the
// cache's row of a unit's key, for as many units at a time.
template <class RowOf>
__device__ __forceinline__ void feed_keys(FusedFeed& feed, const FusedArgs& a,
                                          const FusedKeyCopies& copies, int end, uint64_t once,
                                          bool issues, const RowOf& row_of) {
  const int lane = threadIdx.x % 32;
  const int box = min(a.page_size, copies.keys), boxes = copies.keys / box, together = 32 / boxes;
#pragma unroll 1
  while (feed.at() < end) {
    const int slot = feed.at() + lane / boxes * kFusedProducers;
    const int row = slot < end ? row_of(slot, lane % boxes * box) : 0;
#pragma unroll 1
    for (int i = 0; i < together && feed.at() < end; ++i) {
      uint8_t* to = issues ? feed.take(kFusedSlotBytes) : nullptr;
      __syncwarp();
#pragma unroll 1
      for (int j = 0; j < boxes; ++j) {
        const int its_row = __shfl_sync(0xffffffff, row, i * boxes + j);
        if (!issues) continue;
        uint8_t* at = to + j * box * copies.elems * 2;
        ptx::tma_load_3d(at, &a.k_map, feed.full(), copies.column, copies.part, its_row, once);
        ptx::tma_load_3d(at + kFusedSlotBytes / 2, &a.v_map, feed.full(), copies.column,
                         copies.part, its_row, once);
      }
      issues ? feed.next() : feed.pass();
      __syncwarp();
    }
  }
}

// The cache row with a sequence's key; past its `length` keys, never visible, any row.
__device__ inline int cache_row(const FusedArgs& a, const int32_t* pages, int key, int length) {
  return key < length ? __ldg(pages + key / a.page_size) * a.page_size + key % a.page_size : 0;
}

// A warp that copies ahead of the computation, and waits for free slots only.
template <int kD>
class FusedProducer {
 public:
  __device__ FusedProducer(const FusedArgs& a, uint8_t* smem, const FusedLayout& layout, int index)
      : a_(a),
        plan_(a, kD),
        feed_(smem + layout.ring, reinterpret_cast<uint64_t*>(smem + layout.barriers), a.slots,
              reinterpret_cast<const int*>(smem + layout.flow), index),
        once_(ptx::evict_first_policy()) {}

  __device__ void run() {
    const bool issues = ptx::elect_one();
    if (issues) load_head();
    feed_.share(issues);
    load_keys(issues);
    if (issues) load_out();
    __syncwarp();
  }

 private:
  // Copies `row` and the rows behind in the same slot.
  __device__ void copy(const __nv_bfloat16* w, int64_t row, int rows, int part,
                       const FusedRows& form) {
    const int begin = part * kFusedSlotBytes;
    const int bytes =
        form.parts == 1 ? rows * form.row_bytes : min(kFusedSlotBytes, form.row_bytes - begin);
    uint8_t* to = feed_.take(bytes);
    ptx::bulk_copy(to, reinterpret_cast<const uint8_t*>(w) + row * form.row_bytes + begin, bytes,
                   feed_.full(), once_);
  }

  // A head's rows: q, then k, then v. A slot has rows of a single kind.
  __device__ void load_head() {
    const FusedRows form = plan_.rows.form;
#pragma unroll 1
    for (; feed_.at() < plan_.end_of_rows; feed_.next()) {
      const int in_head = plan_.first_row + feed_.at() / form.parts * form.rows;
      const FusedHeadRow row(plan_.place.head, in_head, a_.group * kD, kD);
      copy(a_.w[row.which], row.row, form.rows, feed_.at() % form.parts, form);
    }
  }

  __device__ void load_out() {
    const FusedRows form = plan_.out_form;
#pragma unroll 1
    for (; feed_.at() < plan_.end_of_out; feed_.next()) {
      const int i = feed_.at() - plan_.end_of_keys;
      const int row = i / form.parts * form.rows;
      copy(a_.w[3], plan_.first_out + row, min(form.rows, plan_.num_out - row), i % form.parts,
           form);
    }
  }

  __device__ void load_keys(bool issues) {
    const int keys = plan_.unit_keys;
    const int first = plan_.keys.first_unit + plan_.first_unit - plan_.end_of_rows;
    feed_keys(feed_, a_, {keys, plan_.elems, plan_.first_elem, plan_.place.head}, plan_.end_of_keys,
              once_, issues, [&](int slot, int key) {
                return cache_row(a_, a_.page_table, (first + slot) * keys + key, plan_.keys.length);
              });
  }

  const FusedArgs& a_;
  const FusedPlan plan_;
  FusedFeed feed_;
  const uint64_t once_;
};

}  // namespace braid::cuda
