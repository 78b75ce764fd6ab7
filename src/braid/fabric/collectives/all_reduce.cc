#include "braid/fabric/collectives/all_reduce.h"

#include <cstring>

#include "braid/fabric/collectives/share.h"
#include "braid/fabric/collectives/sum.h"

// one-shot:  slot_q[p] = in_p;                     out_r = sum_p slot_r[p]
// two-shot:  slot_q[p] = in_p[chunk q];            out_q[chunk q] = sum_p slot_q[p]
//            slot_r[q] = out_q[chunk q];           out_r[chunk q] = slot_r[q]
namespace braid::fabric {
namespace {

constexpr int64_t kFloat = sizeof(float);

const std::byte* bytes_of(const float* data) {
  return reinterpret_cast<const std::byte*>(data);
}

void one_shot(Comm& comm, Exchange& exchange, const float* in, float* out, Range range) {
  const int64_t rounds = ceil_div(range.size(), comm.slot_bytes());
  for (int64_t round = 0; round < rounds; ++round) {
    const Range part = round_part(range, round, comm.slot_bytes());
    const std::byte* own = bytes_of(in) + part.begin;
    exchange.send([&](int peer) { exchange.put(peer, 0, own, {.row_bytes = part.size()}); });
    const auto all = exchange.take_all();
    all[comm.index()] = own;
    exchange.settle();  // out may be in
    sum_in_order(out + part.begin / kFloat, all, part.size() / kFloat);
  }
}

void two_shot(Comm& comm, Exchange& exchange, const float* in, float* out, int64_t bytes, int lanes,
              int lane) {
  const int64_t slot = comm.slot_bytes();
  const auto part = [&](int rank, int64_t round) -> Range {
    const Range chunk = line_part(bytes, comm.size(), rank);
    const Range mine = line_part(chunk.size(), lanes, lane);
    return round_part({chunk.begin + mine.begin, chunk.begin + mine.end}, round, slot);
  };
  const auto send_scatter = [&](int64_t round) {
    exchange.send([&](int peer) {
      const Range p = part(peer, round);
      exchange.put(peer, 0, bytes_of(in) + p.begin, {.row_bytes = p.size()});
    });
  };
  const auto take_scatter = [&](int64_t round) {
    const Range p = part(comm.index(), round);
    const auto all = exchange.take_all();
    all[comm.index()] = bytes_of(in) + p.begin;
    sum_in_order(out + p.begin / kFloat, all, p.size() / kFloat);
  };
  const auto send_gather = [&](int64_t round) {
    const Range p = part(comm.index(), round);
    exchange.send(
        [&](int peer) { exchange.put(peer, 0, bytes_of(out) + p.begin, {.row_bytes = p.size()}); });
  };
  // Overwrites in[chunk q] if out is in: the arriving sum contains the chunk, so q has it.
  const auto take_gather = [&](int64_t round) {
    exchange.take([&](int peer, const std::byte* data) {
      const Range p = part(peer, round);
      if (!p.empty()) std::memcpy(out + p.begin / kFloat, data, p.size());
    });
  };

  // Chunk 0 is the largest. Rounds go out as s0 s1 g0 s2 g1 s3 g2 ..., each after the last but one
  // was taken.
  const Range largest = line_part(line_part(bytes, comm.size(), 0).size(), lanes, lane);
  const int64_t rounds = ceil_div(largest.size(), slot);
  if (rounds == 0) return;
  send_scatter(0);
  if (rounds > 1) send_scatter(1);
  for (int64_t round = 0; round < rounds; ++round) {
    take_scatter(round);
    if (round > 0) {
      if (round + 1 < rounds) send_scatter(round + 1);
      take_gather(round - 1);
    }
    send_gather(round);
  }
  take_gather(rounds - 1);
}

}  // namespace

std::string_view to_string(AllReduceAlgorithm algorithm) {
  return algorithm == AllReduceAlgorithm::one_shot ? "one_shot" : "two_shot";
}

AllReduceAlgorithm choose_all_reduce(int ranks, int64_t bytes, Link slowest, int64_t slot_bytes) {
  constexpr Link kMemory{.bytes_per_second = 8e9, .latency_seconds = 2e-6};
  constexpr double kSumBytesPerSecond = 16e9;
  const Link link = slowest.bytes_per_second > 0 ? slowest : kMemory;
  const double rounds = static_cast<double>(ceil_div(bytes, slot_bytes));
  const double sent = static_cast<double>(bytes) / link.bytes_per_second;
  const double summed = static_cast<double>(bytes) / kSumBytesPerSecond;
  const double p = ranks;
  const double one = rounds * link.latency_seconds + (p - 1) * sent + p * summed;
  const double two = 2 * link.latency_seconds + 2 * (p - 1) / p * sent + 2 * summed;
  return one <= two ? AllReduceAlgorithm::one_shot : AllReduceAlgorithm::two_shot;
}

void all_reduce(Comm& comm, const cpu::Team& team, const float* in, float* out, int64_t n) {
  all_reduce(comm, team, in, out, n,
             choose_all_reduce(comm.size(), n * kFloat, comm.slowest(), comm.slot_bytes()));
}

void all_reduce(Comm& comm, const cpu::Team& team, const float* in, float* out, int64_t n,
                AllReduceAlgorithm algorithm) {
  const int64_t bytes = n * kFloat;
  const int lanes = lanes_for(bytes, comm.lanes());
  for (int lane = team.index; lane < lanes; lane += team.count) {
    const Range range = line_part(bytes, lanes, lane);
    if (comm.size() == 1) {
      if (in != out && !range.empty()) {
        std::memcpy(out + range.begin / kFloat, in + range.begin / kFloat, range.size());
      }
      continue;
    }
    Exchange exchange(comm, lane, comm.tags().all_reduce);
    if (algorithm == AllReduceAlgorithm::one_shot) {
      one_shot(comm, exchange, in, out, range);
    } else {
      two_shot(comm, exchange, in, out, bytes, lanes, lane);
    }
    exchange.settle();
  }
}

}  // namespace braid::fabric
