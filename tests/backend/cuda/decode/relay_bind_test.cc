// A planned relay whose operands are not as planned: an error that says why, before the GPU is
// asked.
#include <gmock/gmock.h>

#include "braid/base/error.h"
#include "braid/kernels/cuda/register.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"

namespace braid::cuda {
namespace {

class RelayBind : public testing::Test {
 protected:
  RelayBind() { add_relays(table_, {}); }

  // y = x W^T for a row x; the addresses are never read.
  Op linear_{.def = &ops::kLinear,
             .attrs = Attrs::of(ops::LinearAttrs{.dtype = DType::bf16}),
             .scope = "layers.0.attn"};
  std::vector<TensorView> in_ = {view(0x1000, {1, 512}), view(0x8000, {512, 512}), {}};
  std::vector<TensorView> out_ = {view(0x2000, {1, 512})};

  static TensorView view(uintptr_t at, const Shape& shape) {
    return make_view(reinterpret_cast<std::byte*>(at), DType::bf16, shape);
  }
  std::string refusal(const Op& op, bool whole_batch = true) const {
    const OpCall call{.op = &op, .in = in_, .out = out_};
    const LaunchArgs args{.call = call, .device = device_, .whole_batch = whole_batch};
    const LaunchGroup group{.first = 0, .count = 1, .form = &kRelay, .kernel = "relay of a plan"};
    try {
      table_.join_of(kRelay).bind(group, {&args, 1});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
      return e.what();
    }
    return "bound";
  }

  const DeviceInfo device_{
      .compute_capability = 90, .num_sms = 132, .shared_memory_per_cta = 232448};
  KernelTable table_{device_};
};

TEST_F(RelayBind, AnotherKernelThanPlanned) {
  EXPECT_EQ(refusal(linear_),
            "a relay as planned: linear at 'layers.0.attn': the plan has 'relay of a plan', and "
            "these operands make 'none'");
}

TEST_F(RelayBind, OperandsBetweenMultiplesOf16Bytes) {
  out_[0] = view(0x2008, {1, 512});
  EXPECT_EQ(refusal(linear_),
            "a relay as planned: linear at 'layers.0.attn': an output at 0x2008: wanted are "
            "contiguous rows at a multiple of 16 bytes");
  out_[0] = view(0x2000, {1, 512});
  in_[1].row_bytes += 16;
  EXPECT_THAT(refusal(linear_), testing::HasSubstr("a weight at 0x8000"));
}

TEST_F(RelayBind, PartsOfTheBatchAndRanksThatAreNotThere) {
  EXPECT_THAT(refusal(linear_, false), testing::HasSubstr("a part of the batch"));
  const Op sum{.def = &ops::kAllReduceAddRmsNorm,
               .attrs = Attrs::of(ops::ReduceNormAttrs{}),
               .scope = "layers.0"};
  EXPECT_EQ(refusal(sum),
            "a relay as planned: all_reduce_add_rms_norm at 'layers.0': there are no "
            "other ranks");
}

}  // namespace
}  // namespace braid::cuda
