#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/fabric/comm.h"
#include "braid/kernels/cpu/register.h"
#include "dist/fabric_testing.h"

// One rank's kernels, driven straight through the table: no Program, no Schedule.
namespace braid::testing_dist {

struct RankConfig {
  int threads = 1;
  int64_t slot_bytes = 4096;
};

class RankKernels {
 public:
  RankKernels(fabric::Endpoint& endpoint, const RankConfig& config)
      : endpoint(endpoint),
        comm(endpoint, fabric::Group::world(endpoint.world_size()),
             {.name = "tp", .lanes = config.threads, .slot_bytes = config.slot_bytes}),
        table(config.threads),
        pool(config.threads, 64) {
    cpu::add_cpu_kernels(table);
    cpu::StreamComms comms{};
    comms[static_cast<size_t>(Stream::compute)] = &comm;
    cpu::add_comm_kernels(table, comms);
  }
  int rank() const { return endpoint.rank(); }
  int P() const { return endpoint.world_size(); }

  fabric::Endpoint& endpoint;
  fabric::Comm comm;
  cpu::KernelTable table;
  cpu::ThreadPool pool;
};

// A kernel bound once. Operands may move between runs, as they do in a schedule.
class BoundOp {
 public:
  // Weights keep `in`'s data; for the others run() says where they are.
  BoundOp(RankKernels& rank, const OpDef& def, Attrs attrs, std::vector<ValueType> in_types,
          std::vector<void*> in)
      : rank_(rank), in_types_(std::move(in_types)) {
    op_.def = &def;
    op_.attrs = std::move(attrs);
    for (size_t i = 0; i < in_types_.size(); ++i) {
      const bool absent = in_types_[i].shape.rank() == 0;
      op_.inputs.push_back(absent ? kNoValue : static_cast<ValueId>(i));
      in_.push_back(absent ? TensorView{}
                           : make_view(static_cast<std::byte*>(in[i]), in_types_[i].dtype,
                                       in_types_[i].shape));
    }
    out_types_ = def.infer(op_.attrs, in_types_);
    for (const ValueType& type : out_types_) {
      op_.outputs.push_back(static_cast<ValueId>(op_.inputs.size() + out_.size()));
      out_.push_back(make_view(nullptr, type.dtype, type.shape));
    }
    call_ = {&op_, in_, out_, in_types_[0].axis, &part_};
    const cpu::Kernel& kernel = rank.table.at(def.kind);
    const KernelInfo info = kernel.info(op_, in_types_, out_types_, rank.pool.threads());
    workspace_.assign(static_cast<size_t>(info.workspace_bytes) + 64, std::byte{0xff});
    std::byte* aligned = workspace_.data();
    while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
    kernel_ = kernel.bind({.call = call_,
                           .workspace = info.workspace_bytes > 0 ? aligned : nullptr,
                           .threads = rank.pool.threads(),
                           .stream = Stream::compute});
  }
  BoundOp(const BoundOp&) = delete;
  BoundOp& operator=(const BoundOp&) = delete;

  // `n` tokens of the whole batch; the data of operands with a batch axis, in order.
  void run(int64_t n, const std::vector<const void*>& in, const std::vector<void*>& out) {
    part_.count.token = n;
    part_.count.shard = even_part(n, rank_.P(), rank_.rank()).size();
    size_t moved = 0;
    for (size_t i = 0; i < in_.size(); ++i) {
      if (in_types_[i].axis == BatchAxis::none) continue;
      in_[i].data = static_cast<std::byte*>(const_cast<void*>(in.at(moved++)));
    }
    for (size_t i = 0; i < out_.size(); ++i) out_[i].data = static_cast<std::byte*>(out.at(i));
    rank_.pool.run([&](const cpu::Team& team) { kernel_(team); });
  }

  Cost cost(int64_t n) const {
    Work work{.extents = {.token = n}};
    work.extents.shard = even_part(n, rank_.P(), rank_.rank()).size();
    return op_.def->cost(op_.attrs, in_types_, out_types_, work);
  }
  const std::vector<ValueType>& out_types() const { return out_types_; }

 private:
  RankKernels& rank_;
  Op op_;
  std::vector<ValueType> in_types_, out_types_;
  std::vector<TensorView> in_, out_;
  BatchPart part_;
  OpCall call_;
  std::vector<std::byte> workspace_;
  cpu::BoundKernel kernel_;
};

// The first `live` elements of two outputs are the same bits; the rest of `got` is poison still.
inline void expect_same(fabric::Guarded<float>& got, fabric::Guarded<float>& want, int64_t live,
                        const char* what) {
  EXPECT_TRUE(got.guards_intact() && want.guards_intact()) << what;
  for (int64_t i = 0; i < got.size(); ++i) {
    if (i >= live) {
      uint32_t bits;
      std::memcpy(&bits, &got[i], sizeof(bits));
      ASSERT_EQ(bits, 0xffffffffu) << what << ": written past its rows at " << i;
    } else {
      ASSERT_FALSE(std::isnan(want[i])) << what << " at " << i;
      ASSERT_TRUE(fabric::same_bits(got[i], want[i]))
          << what << " at " << i << ": " << got[i] << ", wanted " << want[i];
    }
  }
}

}  // namespace braid::testing_dist
