// Binds linear, gated_linear and norm_linear: the skinny kernels for few tokens, cuBLASLt for many.
#include <algorithm>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_gemm.h"
#include "braid/kernels/cuda/linear/device/few_linear.h"
#include "braid/kernels/cuda/pointwise/device/norm.h"
#include "braid/ops/linear.h"

namespace braid::cuda {
namespace {

SkinnyDevice skinny_device(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability,
          .num_sms = device.num_sms,
          .smem_per_cta = static_cast<int>(device.shared_memory_per_cta),
          .smem_per_sm = static_cast<int>(device.shared_memory_per_sm)};
}

// A skinny launch for the op's weights [first, first + n), all with the same dtype. `normed`: the
// input behind the op's norm, if another launch computes the norm.
SkinnyParams make_skinny(const OpCall& call, size_t first, size_t n, const int64_t* rows,
                         const TensorView* normed = nullptr) {
  const LinearOperands op(call);
  const TensorView& x = normed != nullptr ? *normed : op.x();
  SkinnyParams p{.x = x.data,
                 .x_dtype = x.dtype,
                 .x_stride = x.cols(),
                 .k = static_cast<int>(x.cols()),
                 .m = static_cast<int>(x.shape[0]),
                 .rows = rows,
                 .num_parts = static_cast<int>(n),
                 .gated = op.gated(),
                 .activation = op.activation()};
  if (op.normed() && normed == nullptr) {
    const TensorView &a = call.in[0], &b = call.in[1], &w = call.in[2];
    BRAID_CHECK(a.dtype == DType::f32 && (b.data == nullptr || b.dtype == DType::bf16),
                "norm_linear of {} and {}", name(a.dtype), name(b.dtype));
    p.normed = true;
    p.norm = {.a = a.as<const float>(),
              .a_stride = a.cols(),
              .b = b.data,
              .b_stride = a.cols(),
              .w = w.data,
              .w_dtype = w.dtype,
              .eps = call.attrs<ops::NormLinearAttrs>().norm.eps};
    // The first of several launches writes the sum.
    if (b.data && first == 0) {
      p.norm.sum = call.out[0].as<float>();
      p.norm.sum_stride = a.cols();
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const TensorView& w = op.weight(first + i);
    const TensorView bias = op.bias(first + i);
    const TensorView& y = op.y(first + i);
    p.parts[i] = {.w = w.data,
                  .dtype = w.dtype,
                  .row_bytes = w.row_bytes,
                  .bias = bias.data,
                  .bias_dtype = bias.dtype,
                  .y = y.data,
                  .y_dtype = y.dtype,
                  .y_stride = y.cols(),
                  .n = static_cast<int>(w.shape[0])};
  }
  return p;
}

// Neighbouring weights with the same dtype share a launch.
struct SkinnyGroup {
  size_t first = 0;
  size_t count = 1;
  FewConfig config;
};

// A norm_linear's norm as a launch, and its output.
struct NormAhead {
  std::shared_ptr<DeviceMemory> memory;
  TensorView y;  // bf16 [T, C]
  RowsConfig config;

  RmsNormParams params(const OpCall& call, const int64_t* rows) const {
    const TensorView& b = call.in[1];
    return {.a = call.in[0],
            .b = b,
            .w = call.in[2],
            .s = b.data ? call.out[0] : TensorView{},
            .y = y,
            .eps = call.attrs<ops::NormLinearAttrs>().norm.eps,
            .group = call.in[0].cols(),
            .rows = rows};
  }
};

// Null where products with the norm inside are faster.
std::shared_ptr<NormAhead> norm_ahead(const LaunchArgs& args) {
  const OpCall& call = args.call;
  const LinearOperands op(call);
  if (!op.normed()) return nullptr;
  const TensorView& a = call.in[0];
  const int64_t bytes = bytes_of(DType::bf16, a.cols());
  NormAhead ahead{.y = {nullptr, DType::bf16, a.shape, bytes}};
  for (size_t i = 0; i < op.weights(); ++i) {
    const SkinnyParams p = make_skinny(call, i, 1, nullptr, &ahead.y);
    if (!norm_goes_first(p, skinny_device(args.device))) return nullptr;
  }
  ahead.memory = std::make_shared<CudaMemory>(args.device.id, a.rows() * bytes);
  ahead.y.data = ahead.memory->data();
  ahead.config = choose_norm(rms_norm_desc(ahead.params(call, nullptr)), args.device.num_sms);
  return std::make_shared<NormAhead>(std::move(ahead));
}

BoundKernel bind_skinny(const LaunchArgs& args) {
  prepare_few_linear();
  const LinearOperands op(args.call);
  const std::shared_ptr<NormAhead> ahead = norm_ahead(args);
  std::vector<SkinnyGroup> groups;
  for (size_t i = 0; i < op.weights(); ++i) {
    const bool joins = i > 0 && op.weight(i).dtype == op.weight(i - 1).dtype;
    if (joins) {
      ++groups.back().count;
    } else {
      groups.push_back({.first = i});
    }
  }
  BRAID_CHECK(!op.gated() || groups.size() == 1, "gate and up of two dtypes");
  const int64_t* rows = args.live(args.call.axis);
  for (SkinnyGroup& group : groups) {
    const SkinnyParams p =
        make_skinny(args.call, group.first, group.count, rows, ahead ? &ahead->y : nullptr);
    group.config = choose_few(p, skinny_device(args.device));
  }
  return [&call = args.call, rows, groups, ahead](LaunchContext context) {
    if (ahead) {
      rms_norm(ahead->params(call, rows), ahead->config, context);
      context.pdl = true;
    }
    for (const SkinnyGroup& group : groups) {
      const SkinnyParams p =
          make_skinny(call, group.first, group.count, rows, ahead ? &ahead->y : nullptr);
      few_linear(p, group.config, context);
      context.pdl = true;
    }
  };
}

// Whether reading the weights once beats the library: true if a kernel reads them once for so many
// tokens.
bool few_tokens(TypeList in, const DeviceInfo& device) {
  const int64_t T = in[0].shape[0], k = in[0].shape[1];
  if (!gemm_available()) return true;
  if (dense_product(in)) return false;
  if (T <= kSkinnyMaxTokens) return true;
  for (size_t i = 0; i < (in.size() - 1) / 2; ++i) {
    const DType dtype = in[1 + i].dtype;
    const PanelShape shape = {
        .dtype = dtype,
        .aligned = in[0].dtype == DType::bf16 && bytes_of(dtype, k) % 16 == 0,
        .k = k,
        .tokens = static_cast<int>(std::min<int64_t>(T, kPanelMaxTokens + 1))};
    if (!panel_takes(shape, skinny_device(device))) return false;
  }
  return true;
}

// Gate and up of two dtypes are two products and the gate's own kernel.
bool one_product(const Op& op, TypeList in) {
  return op.def != &ops::kGatedLinear || in[1].dtype == in[2].dtype;
}

}  // namespace

void add_linear_kernels(KernelTable& table) {
  const auto store = std::make_shared<GemmStore>();
  const Kernel kernel = {
      .info = [](const Op& op, TypeList in, TypeList out, const DeviceInfo& device) -> KernelInfo {
        if (few_tokens(in, device) && one_product(op, in)) {
          return {fmt::format("{}.skinny", op.def->kind), 0};
        }
        return gemm_info(op, in, out);
      },
      .bind = [store](const LaunchArgs& args) -> BoundKernel {
        std::vector<ValueType> in;
        for (const TensorView& view : args.call.in) {
          in.push_back({view.dtype, view.shape, args.call.axis});
        }
        if (few_tokens(in, args.device) && one_product(*args.call.op, in)) {
          return bind_skinny(args);
        }
        return bind_gemm(args, *store);
      }};
  table.add(ops::kNormLinear.kind, {.info =
                                        [](const Op&, TypeList, TypeList, const DeviceInfo&) {
                                          return KernelInfo{"norm_linear.skinny", 0};
                                        },
                                    .bind = bind_skinny});
  table.add(ops::kLinear.kind, kernel);
  table.add(ops::kGatedLinear.kind, kernel);
}

}  // namespace braid::cuda
