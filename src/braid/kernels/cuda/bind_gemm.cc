#include "braid/kernels/cuda/bind_gemm.h"

#include <algorithm>

#include "braid/base/math.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/linear/device/dequantize.h"
#include "braid/kernels/cuda/linear/search_rows.h"
#include "braid/kernels/cuda/pointwise/device/add.h"
#include "braid/kernels/cuda/pointwise/device/gated.h"

namespace braid::cuda {
namespace {

constexpr int64_t kAlignment = 256;

// The dtype of the library's operands. An f32 x, from a model with norms after its layers, is
// rounded.
DType product_dtype(TypeList in) {
  if (const auto dense = dense_product(in)) return *dense;
  return in[0].dtype == DType::f32 ? DType::bf16 : in[0].dtype;
}

// Equal-shaped k and v weights of a projection are a single launch of the library: each weight
// alone has too few tiles for the GPU.
bool last_are_alike(bool gated, TypeList in) {
  const size_t n = (in.size() - 1) / 2;
  if (gated || n < 2) return false;
  const ValueType &a = in[n - 1], &b = in[n];
  return a.dtype == b.dtype && a.shape == b.shape && a.dtype == product_dtype(in);
}

// A launch's scratch: the gate's product, products kept from y because of dead rows (the last
// product of a pair apart), rounded x, a dequantized weight, the library's workspace.
struct GemmScratch {
  int64_t gate = 0;
  int64_t y = 0;
  int64_t y2 = 0;
  int64_t rounded_x = 0;
  int64_t weight = 0;
  int64_t library = 0;
  int64_t bytes = 0;

  GemmScratch(bool gated, TypeList in, TypeList out) {
    const ValueType& x = in[0];
    const size_t n = (in.size() - 1) / 2;
    const DType product = product_dtype(in);
    const int64_t x_bytes = x.dtype == product ? 0 : bytes_of(product, x.shape.elems());
    int64_t gate_bytes = 0, y_bytes = 0, y2_bytes = 0, weight_bytes = 0;
    if (gated) gate_bytes = bytes_of(x.dtype, x.shape[0] * in[1].shape[0]);
    for (size_t i = 0; i < n; ++i) {
      const ValueType& w = in[1 + i];
      const DType dtype = out[gated ? 0 : i].dtype;
      y_bytes = std::max(y_bytes, bytes_of(dtype, x.shape[0] * w.shape[0]));
      if (w.dtype != product) {
        weight_bytes = std::max(weight_bytes, bytes_of(product, w.shape.elems()));
      }
    }
    if (last_are_alike(gated, in)) {
      y2_bytes = bytes_of(out[n - 1].dtype, x.shape[0] * in[n].shape[0]);
    }
    y = round_up(gate_bytes, kAlignment);
    y2 = y + round_up(y_bytes, kAlignment);
    rounded_x = y2 + round_up(y2_bytes, kAlignment);
    weight = rounded_x + round_up(x_bytes, kAlignment);
    library = weight + round_up(weight_bytes, kAlignment);
    bytes = library + GemmStore::kWorkspaceBytes;
  }
};

std::vector<ValueType> types_of(std::span<const TensorView> views, BatchAxis axis) {
  std::vector<ValueType> types;
  for (const TensorView& view : views) types.push_back({view.dtype, view.shape, axis});
  return types;
}

}  // namespace

std::shared_ptr<Gemm> GemmStore::get(const GemmDesc& desc, const GemmPointers& pointers,
                                     BatchAxis axis) {
  const bool search = repays_search(desc.m, axis);
  const std::string key =
      fmt::format("{} {} {} {}", to_string(desc), desc.w_stride, desc.y_stride, search);
  if (auto known = gemms_[key].lock()) return known;
  if (!library_) library_ = CublasLt::load();
  const auto gemm =
      std::make_shared<Gemm>(library_, desc, GemmOptions{.max_workspace = kWorkspaceBytes});
  gemm->prepare(pointers, nullptr, search);
  searches_ += search ? 1 : 0;
  std::erase_if(gemms_, [](const auto& made) { return made.second.expired(); });
  gemms_[key] = gemm;
  return gemm;
}

std::optional<DType> dense_product(TypeList in) {
  const DType x = in[0].dtype, w = in[1].dtype;
  const TypeList weights = in.subspan(1, (in.size() - 1) / 2);
  const bool alike =
      std::ranges::all_of(weights, [w](const ValueType& type) { return type.dtype == w; });
  const bool fits = (w == DType::f32 && x == w) || (w == DType::f16 && x != DType::bf16);
  return in[0].axis == BatchAxis::none && alike && fits ? std::optional(w) : std::nullopt;
}

bool gemm_available() {
  static const bool available = cublaslt_available();
  return available;
}

KernelInfo gemm_info(const Op& op, TypeList in, TypeList out) {
  return {fmt::format("{}.cublaslt", op.def->kind),
          GemmScratch(op.def == &ops::kGatedLinear, in, out).bytes};
}

namespace {

// Two products in a launch, the weight at the lower address first.
struct Pair {
  std::shared_ptr<Gemm> gemm;  // null: no pair
  size_t first = 0;
  size_t second = 0;
};

// One weight's product.
struct Product {
  std::shared_ptr<Gemm> gemm;
  std::shared_ptr<DeviceMemory> bias;  // converted
  GemmPointers pointers;               // fixed pointers
  DequantizeParams plain;              // dequantizes the weight; `w` is null for plain weights
};

class BoundGemm {
 public:
  BoundGemm(const LaunchArgs& args, GemmStore& store)
      : call_(args.call),
        gated_(LinearOperands(args.call).gated()),
        in_(types_of(args.call.in, args.call.axis)),
        product_(product_dtype(in_)),
        scratch_(gated_, in_, types_of(args.call.out, args.call.axis)),
        workspace_(args.workspace),
        rows_(args.live(args.call.axis)),
        own_rows_(args.own_rows) {
    const LinearOperands op(call_);
    for (size_t i = 0; i < op.weights(); ++i) products_.push_back(make(args, store, op, i));
    const int sms = args.device.num_sms;
    if (rounds_x()) x_config_ = choose_map(convert_desc(rounding()), sms);
    if (last_are_alike(gated_, in_)) make_pair(store, op, sms);
    if (gated_) {
      gate_config_ = choose_map(gated_desc(gate_params()), sms);
    } else {
      for (size_t i = 0; i < op.weights(); ++i) {
        copy_configs_.push_back(choose_map(convert_desc(copy_params(i)), sms));
      }
    }
  }

  void operator()(LaunchContext context) const {
    const LinearOperands op(call_);
    const bool paired =
        pair_.gemm && fits_pair(y_of(op, pair_.first).data, y_of(op, pair_.second).data);
    const size_t alone = products_.size() - (paired ? 2 : 0);
    if (rounds_x()) {
      convert(rounding(), x_config_, context);
      context.pdl = true;
    }
    for (size_t i = 0; i < alone; ++i) {
      const Product& product = products_[i];
      if (product.plain.w) dequantize(product.plain, context);
      GemmPointers p = product.pointers;
      p.x = x_of(op).data;
      p.y = y_of(op, i).data;
      product.gemm->run(context, p);
      context.pdl = true;
      finish(i, context);
    }
    if (paired) {
      pair_.gemm->run(context, pair_pointers(op, [&](size_t i) { return y_of(op, i).data; }));
      context.pdl = true;
      for (size_t i = alone; i < products_.size(); ++i) finish(i, context);
    }
    if (gated_) gated(gate_params(), gate_config_, context);
  }

 private:
  // The library computes all rows. In a buffer shared by micro-batches, dead rows may belong to
  // another micro-batch; such steps have the counts of the capture.
  bool writes_in_place() const { return own_rows_ || call_.rows() == call_.in[0].shape[0]; }

  void finish(size_t i, const LaunchContext& context) const {
    if (!gated_ && !writes_in_place()) convert(copy_params(i), copy_configs_[i], context);
  }

  bool rounds_x() const { return LinearOperands(call_).x().dtype != product_; }
  TensorView x_of(const LinearOperands& op) const {
    if (!rounds_x()) return op.x();
    return make_view(workspace_ + scratch_.rounded_x, product_, op.x().shape);
  }
  ConvertParams rounding() const {
    const LinearOperands op(call_);
    return {.x = op.x(), .y = x_of(op), .rows = rows_};
  }

  TensorView in_scratch(const LinearOperands& op, size_t i) const {
    const TensorView& y = op.y(i);
    const bool second = pair_.gemm && i == pair_.second;
    return make_view(workspace_ + (second ? scratch_.y2 : scratch_.y), y.dtype, y.shape);
  }

  // The gate's product goes to the scratch, the other product to y, and the gate is applied in y.
  TensorView y_of(const LinearOperands& op, size_t i) const {
    const TensorView& y = op.y(i);
    if (gated_ && i == 0) return make_view(workspace_ + scratch_.gate, y.dtype, y.shape);
    return writes_in_place() ? y : in_scratch(op, i);
  }

  ConvertParams copy_params(size_t i) const {
    const LinearOperands op(call_);
    return {.x = in_scratch(op, i), .y = op.y(i), .rows = rows_};
  }

  GatedParams gate_params() const {
    const LinearOperands op(call_);
    return {.gate = y_of(op, 0),
            .up = y_of(op, 1),
            .y = op.y(1),
            .activation = op.activation(),
            .rows = rows_};
  }

  Product make(const LaunchArgs& args, GemmStore& store, const LinearOperands& op, size_t i) const {
    const TensorView x = x_of(op), w = op.weight(i), bias = op.bias(i), y = y_of(op, i);
    Product product;
    GemmPointers& p = product.pointers;
    p.x = x.data;
    p.y = y.data;
    p.w = w.data;
    p.workspace = workspace_ + scratch_.library;
    if (w.dtype != product_) {
      BRAID_CHECK(x.dtype == DType::bf16, "a weight is made {}", name(x.dtype));
      p.w = workspace_ + scratch_.weight;
      product.plain = {.w = w.data,
                       .dtype = w.dtype,
                       .row_bytes = w.row_bytes,
                       .out = workspace_ + scratch_.weight,
                       .out_stride = w.cols(),
                       .n = w.shape[0],
                       .k = w.cols()};
    }
    if (bias.data) {
      p.bias = bias.data;
      if (bias.dtype != y.dtype) {
        product.bias = row_as(args, bias, y.dtype);
        p.bias = product.bias->data();
      }
    }
    const bool packed = w.dtype != product_ || w.contiguous();  // else columns of a whole weight
    product.gemm = store.get({.m = x.shape[0],
                              .n = w.shape[0],
                              .k = w.cols(),
                              .dtype = x.dtype,
                              .y_dtype = y.dtype,
                              .bias = p.bias != nullptr,
                              .w_stride = packed ? 0 : w.row_bytes / bytes_of(w.dtype, 1)},
                             p, call_.axis);
    return product;
  }

  template <class Y>
  GemmPointers pair_pointers(const LinearOperands& op, const Y& y) const {
    GemmPointers p = products_[pair_.first].pointers;
    p.x = x_of(op).data;
    p.w2 = products_[pair_.second].pointers.w;
    p.y = y(pair_.first);
    p.y2 = y(pair_.second);
    return p;
  }

  void make_pair(GemmStore& store, const LinearOperands& op, int sms) {
    const size_t n = products_.size();
    GemmDesc desc = products_[n - 1].gemm->desc();
    constexpr int64_t kTile = 128;  // of the library's, about
    if (ceil_div(desc.m, kTile) * ceil_div(desc.n, kTile) > sms) return;
    const GemmPointers &a = products_[n - 2].pointers, &b = products_[n - 1].pointers;
    const bool ascending = fits_pair(a.w, b.w);
    if (a.bias || b.bias || !(ascending || fits_pair(b.w, a.w))) return;
    desc.pair = true;
    pair_ = {.first = ascending ? n - 2 : n - 1, .second = ascending ? n - 1 : n - 2};
    const GemmPointers p = pair_pointers(
        op, [&](size_t i) { return workspace_ + (i == pair_.second ? scratch_.y2 : scratch_.y); });
    pair_.gemm = store.get(desc, p, call_.axis);
  }

  const OpCall& call_;
  const bool gated_;
  const std::vector<ValueType> in_;
  const DType product_;  // of the library's operands
  const GemmScratch scratch_;
  std::byte* workspace_;
  const int64_t* rows_;
  const bool own_rows_;
  std::vector<Product> products_;
  Pair pair_;
  RowsConfig x_config_;
  RowsConfig gate_config_;
  std::vector<RowsConfig> copy_configs_;  // [weights]
};

}  // namespace

BoundKernel bind_gemm(const LaunchArgs& args, GemmStore& store) {
  const auto bound = std::make_shared<BoundGemm>(args, store);
  return [bound](const LaunchContext& context) { (*bound)(context); };
}

}  // namespace braid::cuda
