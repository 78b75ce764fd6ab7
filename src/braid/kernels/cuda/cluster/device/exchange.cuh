#pragma once

#include <cuda_bf16.h>

#include "braid/kernels/cuda/cluster/device/quad.cuh"
#include "braid/kernels/cuda/cluster/exchange.h"
#include "braid/kernels/cuda/ptx/gpu.h"
#include "braid/kernels/cuda/ptx/once.h"
#include "braid/kernels/cuda/ptx/store_async.h"

// cluster_reduce and cluster_gather: out = sum_r x_r or max_r x_r, and out[r] = x_r, over a
// cluster's CTAs r, with equal bits in all CTAs. Protocol and proof: docs/cluster-fusion.md.
namespace braid::cuda {

// A CTA's exchanging threads: all threads call every member below.
struct ExchangeTeam {
  int thread = 0;
  int threads = 0;  // a multiple of 32, at least kMaxCluster - 1
  int barrier = 0;  // a named barrier for these threads
  __device__ void sync() const { ptx::named_barrier_sync(barrier, threads); }
};

// Shared and device memory for a CTA's exchanges, equal in all CTAs of a cluster.
struct ExchangePlace {
  uint8_t* inbox = nullptr;      // [kExchangeTurns, inbox_bytes], aligned to 16 bytes
  int inbox_bytes = 0;           // a multiple of 16
  uint64_t* barriers = nullptr;  // [kExchangeTurns, kExchangeRounds] in shared memory
  uint4* mail = nullptr;         // exchange_mail_bytes of this cluster; null on chip
  uint32_t tag = 0;  // in memory: exchange i of the launch has tag + i, unlike any older word
};

// x and out are 16-byte aligned, in shared memory, readable and writable up to a multiple of 16
// bytes. Sums form a tree over pairs of ranks, ((0 + 1) + (2 + 3)) + ..., in f32, for every form,
// path and piece. A CTA may end after its last exchange.
template <ExchangePath kPath>
class ClusterExchange {
  static constexpr bool kChip = kPath == ExchangePath::chip;

 public:
  // Called by all threads of the CTA, before `open`. `rank` and `size` are the cluster's. In
  // exchanges through memory they count CTAs that run at the same time.
  __device__ ClusterExchange(const ExchangePlace& place, const ExchangeTeam& team, int rank,
                             int size)
      : place_(place), team_(team), rank_(rank), size_(size) {
    if (size == 1) return;
    per_ = team.threads / (size - 1);
    peer_ = rank + 1 + team.thread / per_;
    if (peer_ >= size) peer_ -= size;
    first_ = team.thread < per_ * (size - 1) ? team.thread % per_ : kNone;
    if (kChip && team.thread == 0) {
      for (int i = 0; i < kExchangeTurns * kExchangeRounds; ++i) {
        ptx::mbarrier_init(place.barriers + i, 1);
      }
      ptx::fence_barrier_init();
    }
  }
  // Begins and ends the meeting before the first send: both once, by all threads of the CTA.
  __device__ static void arrive() {
    if constexpr (kChip) ptx::cluster_arrive();
  }
  __device__ static void open() {
    if constexpr (kChip) ptx::cluster_wait();
  }

  // out [count] f32 = the sum (or Op) over x [count] of all CTAs; out is not x. All threads of the
  // team see out.
  template <class Op, class T>
  __device__ void reduce(const T* x, float* out, int count, ExchangeForm form) {
    const int piece = exchange_piece(form, size_, place_.inbox_bytes);
    for (int at = 0; at < count; at += piece) {
      const int quads = (min(piece, count - at) + kExchangeQuad - 1) / kExchangeQuad;
      const auto* from = reinterpret_cast<const QuadOf<T>*>(x + at);
      auto* to = reinterpret_cast<float4*>(out + at);
      team_.sync();  // x is complete, and no thread here still reads an inbox
      if (size_ == 1) {
        for (int q = team_.thread; q < quads; q += team_.threads) to[q] = as_floats(from[q]);
      } else if (form == ExchangeForm::direct) {
        direct<Op>(from, to, quads);
      } else if (form == ExchangeForm::scatter) {
        scatter<Op>(from, to, quads);
      } else {
        tree<Op>(from, to, quads);
      }
      ++uses_;
    }
    team_.sync();
  }

  // x of all CTAs, in rank order: CTA r's is at r * (bytes rounded up to 16). Results stay in the
  // inbox until the next exchange, and must fit.
  __device__ const uint8_t* gather(const void* x, int bytes, ExchangeForm form) {
    const int lines = (bytes + 15) / 16;
    const auto* from = static_cast<const uint4*>(x);
    auto* to = reinterpret_cast<uint4*>(inbox());
    team_.sync();
    for (int i = team_.thread; i < lines; i += team_.threads) to[rank_ * lines + i] = from[i];
    if (size_ > 1) {
      kChip&& form == ExchangeForm::tree ? gather_tree(from, to, lines)
                                         : gather_direct(from, to, lines);
    }
    team_.sync();
    ++uses_;
    return reinterpret_cast<const uint8_t*>(to);
  }

 private:
  static constexpr int kNone = 1 << 28;

  __device__ uint8_t* inbox() const {
    return place_.inbox + uses_ % kExchangeTurns * place_.inbox_bytes;
  }
  __device__ uint64_t* barrier(int round) const {
    return place_.barriers + uses_ % kExchangeTurns * kExchangeRounds + round;
  }
  // `bytes` will arrive in a round.
  __device__ void expect(int round, int bytes) {
    if (kChip && team_.thread == 0) ptx::mbarrier_arrive_expect(barrier(round), bytes);
  }
  __device__ void wait(int round) {
    const int i = uses_ % kExchangeTurns * kExchangeRounds + round;
    ptx::mbarrier_wait_cluster(place_.barriers + i, parities_ >> i & 1);
    parities_ ^= 1u << i;
  }

  // Memory for a CTA's data in a round, read by every interested CTA.
  __device__ uint4* mail(int round, int rank) const {
    const int turn = uses_ % kExchangeTurns;
    return place_.mail +
           ((turn * kExchangeRounds + round) * size_ + rank) * int64_t{place_.inbox_bytes} / 8;
  }
  __device__ uint32_t tag() const { return place_.tag + uses_; }
  template <class Q>
  __device__ void post(int round, int i, Q x) const {
    post_words(mail(round, rank_), i, x, tag());
  }
  template <class Q>
  __device__ Q fetch(int round, int rank, int i) const {
    return fetch_words<Q>(mail(round, rank), i, tag());
  }

  // Sends the i-th quad at `place` of CTA `rank`'s inbox.
  template <class Q>
  __device__ void push(int round, int rank, const void* place, int i, Q x) const {
    ptx::store_async(ptx::cluster_address(place, rank) + i * static_cast<int>(sizeof(Q)),
                     words_of(x), ptx::cluster_address(barrier(round), rank));
  }

  // Sum of quad i over all CTAs: another CTA's quad is at of(rank).
  template <class Op, class Q, class Of>
  __device__ float4 add_up(const Q& own, const Of& of) const {
    return size_ <= 2   ? add_ranks<Op, 2>(own, of)
           : size_ <= 4 ? add_ranks<Op, 4>(own, of)
           : size_ <= 8 ? add_ranks<Op, 8>(own, of)
                        : add_ranks<Op, 16>(own, of);
  }
  template <class Op, int kRanks, class Q, class Of>
  __device__ float4 add_ranks(const Q& own, const Of& of) const {
    float4 v[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      v[r] = as_floats(r == rank_ || r >= size_ ? own : of(r));
    }
#pragma unroll
    for (int stride = 1; stride < kRanks; stride *= 2) {
#pragma unroll
      for (int r = 0; r < kRanks; r += 2 * stride) {
        if (r + stride < size_) v[r] = Op::of(v[r], v[r + stride]);
      }
    }
    return v[0];
  }

  // Quads [first, first + count) from every other CTA arrive in inbox slots with `count` quads.
  template <class Q>
  __device__ void fetch_all(Q* slots, int first, int count) {
    for (int q = first_; q < count; q += per_) {
      slots[peer_ * count + q] = fetch<Q>(0, peer_, first + q);
    }
    team_.sync();
  }

  template <class Op, class Q>
  __device__ void direct(const Q* x, float4* out, int quads) {
    auto* slots = reinterpret_cast<Q*>(inbox());
    if constexpr (kChip) {
      expect(0, (size_ - 1) * quads * static_cast<int>(sizeof(Q)));
      for (int q = first_; q < quads; q += per_) push(0, peer_, slots + rank_ * quads, q, x[q]);
      wait(0);
    } else {
      for (int q = team_.thread; q < quads; q += team_.threads) post(0, q, x[q]);
      fetch_all(slots, 0, quads);
    }
    for (int q = team_.thread; q < quads; q += team_.threads) {
      out[q] = add_up<Op>(x[q], [&](int r) { return slots[r * quads + q]; });
    }
  }

  template <class Op, class Q>
  __device__ void scatter(const Q* x, float4* out, int quads) {
    const int part = (quads + size_ - 1) / size_;
    const auto begin_of = [&](int rank) { return min(quads, rank * part); };
    const int begin = begin_of(rank_), count = begin_of(rank_ + 1) - begin;
    auto* slots = reinterpret_cast<Q*>(inbox());
    auto* sums = reinterpret_cast<float4*>(inbox() + size_ * part * 16);
    if constexpr (kChip) {
      expect(0, (size_ - 1) * count * static_cast<int>(sizeof(Q)));
      expect(1, (quads - count) * 16);
      const int to = begin_of(peer_), its = begin_of(peer_ + 1) - to;
      // Slots are as wide as their reader's part.
      for (int q = first_; q < its; q += per_) {
        push(0, peer_, slots + rank_ * its, q, x[to + q]);
      }
      wait(0);
    } else {
      for (int q = team_.thread; q < quads; q += team_.threads) post(0, q, x[q]);
      fetch_all(slots, begin, count);
    }
    for (int q = team_.thread; q < count; q += team_.threads) {
      const float4 sum = add_up<Op>(x[begin + q], [&](int r) { return slots[r * count + q]; });
      out[begin + q] = sum;
      if constexpr (kChip) {
        for (int i = 1; i < size_; ++i) {
          const int to = rank_ + i < size_ ? rank_ + i : rank_ + i - size_;
          push(1, to, sums, begin + q, sum);
        }
      } else {
        post(1, begin + q, sum);
      }
    }
    if constexpr (kChip) wait(1);
    for (int q = team_.thread; q < quads; q += team_.threads) {
      if (q >= begin && q < begin + count) continue;
      if constexpr (kChip) {
        out[q] = sums[q];
      } else {
        out[q] = fetch<float4>(1, q / part, q);
      }
    }
  }

  // In a round, groups of `stride` ranks exchange with their neighbours; the last group may be
  // short, or have none. A member gets the other group's data from a single member.
  struct Round {
    int group;    // first rank of this CTA's group
    int members;  // of the group
    int other;    // first rank of the other group
    int others;   // none: 0
    __device__ Round(int rank, int size, int stride) {
      group = rank & -stride;
      other = group ^ stride;
      members = min(stride, size - group);
      others = other < size ? min(stride, size - other) : 0;
    }
    // f(rank) for each CTA that this CTA sends to.
    template <class F>
    __device__ void for_targets(int rank, const F& f) const {
      for (int i = rank - group; i < others; i += members) f(other + i);
    }
    __device__ int source(int rank) const { return other + (rank - group) % others; }
  };

  template <class Op, class Q>
  __device__ void tree(const Q* x, float4* out, int quads) {
    auto* slots = reinterpret_cast<float4*>(inbox());  // [rounds, quads]
    for (int round = 0, stride = 1; stride < size_; ++round, stride *= 2) {
      const Round r(rank_, size_, stride);
      if (r.others == 0) {
        for (int q = team_.thread; round == 0 && q < quads; q += team_.threads) {
          out[q] = as_floats(x[q]);
        }
      } else if (round == 0) {
        step<Op>(r, round, reinterpret_cast<Q*>(slots), x, out, quads);
      } else {
        step<Op>(r, round, slots + round * quads, out, out, quads);
      }
    }
  }

  // A thread handles the same quads in every round: no meeting of threads in between.
  template <class Op, class Q>
  __device__ void step(const Round& r, int round, Q* slots, const Q* x, float4* out, int quads) {
    const bool first = rank_ < r.other;  // this CTA's group is the first operand
    if constexpr (kChip) {
      expect(round, quads * static_cast<int>(sizeof(Q)));
      r.for_targets(rank_, [&](int to) {
        for (int q = team_.thread; q < quads; q += team_.threads) push(round, to, slots, q, x[q]);
      });
      wait(round);
    } else {
      for (int q = team_.thread; q < quads; q += team_.threads) post(round, q, x[q]);
    }
    for (int q = team_.thread; q < quads; q += team_.threads) {
      float4 other;
      if constexpr (kChip) {
        other = as_floats(slots[q]);
      } else {
        other = as_floats(fetch<Q>(round, r.source(rank_), q));
      }
      const float4 own = as_floats(x[q]);
      out[q] = first ? Op::of(own, other) : Op::of(other, own);
    }
  }

  __device__ void gather_direct(const uint4* x, uint4* to, int lines) {
    if constexpr (kChip) {
      expect(0, (size_ - 1) * lines * 16);
      for (int i = first_; i < lines; i += per_) push(0, peer_, to + rank_ * lines, i, x[i]);
      wait(0);
    } else {
      for (int i = team_.thread; i < lines; i += team_.threads) post(0, i, x[i]);
      for (int i = first_; i < lines; i += per_) {
        to[peer_ * lines + i] = fetch<uint4>(0, peer_, i);
      }
    }
  }

  __device__ void gather_tree(const uint4* x, uint4* to, int lines) {
    for (int round = 0, stride = 1; stride < size_; ++round, stride *= 2) {
      const Round r(rank_, size_, stride);
      if (r.others == 0) continue;
      expect(round, r.others * lines * 16);
      r.for_targets(rank_, [&](int rank) {
        for (int member = r.group; member < r.group + r.members; ++member) {
          uint4* place = to + member * lines;
          const uint4* from = member == rank_ ? x : place;
          for (int i = team_.thread; i < lines; i += team_.threads) {
            push(round, rank, place, i, from[i]);
          }
        }
      });
      wait(round);
    }
  }

  const ExchangePlace place_;
  const ExchangeTeam team_;
  const int rank_;
  const int size_;
  // Threads are dealt to the other CTAs: this thread's CTA, its first element for that CTA, and the
  // number of threads that share the CTA.
  int peer_ = 0;
  int first_ = kNone;
  int per_ = 1;
  uint32_t uses_ = 0;
  uint32_t parities_ = 0;  // of [kExchangeTurns, kExchangeRounds]
};

}  // namespace braid::cuda
