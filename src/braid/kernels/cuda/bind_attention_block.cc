// Binds attention blocks, and chooses the fusion of decode steps with few tokens.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/decode_choice/describe_step.h"
#include "braid/kernels/cuda/fused_attention/device/fused_launch.h"
#include "braid/kernels/cuda/register.h"
#include "braid/ops/attention_block.h"

namespace braid::cuda {
namespace {

using ops::BlockInput;

constexpr double kStreamOfPeak = .94;  // a read-only stream's share of a GPU's peak

double stream_of(const DeviceInfo& device) {
  int khz = 0, bits = 0;
  check_cuda(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device.id), "memory clock");
  check_cuda(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device.id),
             "memory bus");
  return kStreamOfPeak * 2e3 * khz * bits / 8;
}

// Choices for a table's Programs, by tokens, and the GPU's answers for these choices.
class DecodeState {
 public:
  DecodeState(const DeviceInfo& device, const DecodeForm& form) : device_(device), asked_(form) {}

  Program rewrite(Program program) {
    std::optional<DecodeStep> step = describe_step(program, kUsualContext);
    if (!step) return program;
    const FusedDevice& device = clusters(step->block.head_dim);
    if (step->no_fused.empty() && shares_gpu()) step->no_fused = "ranks that share a GPU: one";
    const DecodeRates rates = decode_rates(device_.name, stream_of(device_));
    const DecodeForm form = choose_decode(asked_, *step, device, rates);
    choices_[step->block.tokens] = {form, explain_decode(form, *step, device, rates)};
    if (form.kind != DecodeKind::fused) return program;
    return fuse(program, ops::attention_block_fusions(form.scope == FusedScope::projected));
  }
  std::vector<std::string> explain() const {
    std::vector<std::string> lines;
    for (const auto& [tokens, choice] : choices_) {
      lines.insert(lines.end(), choice.lines.begin(), choice.lines.end());
    }
    return lines;
  }
  // For steps with one token.
  bool relays() const {
    const auto choice = choices_.find(1);
    const DecodeKind kind = choice == choices_.end() ? asked_.kind : choice->second.form.kind;
    return kind == DecodeKind::automatic || kind == DecodeKind::relay;
  }

  FusedConfig config(const FusedShape& shape, FusedScope scope) {
    const FusedDevice& device = clusters(shape.head_dim);
    const DecodeForm& form = choices_.at(shape.tokens).form;
    const std::string why =
        why_not_fused(shape, scope, form.cluster, device, form.split, form.parts);
    if (!why.empty()) fail(ErrorCode::kUnsupported, "attention_block: {}", why);
    return fused_config(shape, scope, form.path, form.cluster, device, form.split, form.parts);
  }

 private:
  const FusedDevice& clusters(int head_dim) {
    std::optional<FusedDevice>& device = devices_[head_dim == 64 ? 0 : 1];
    if (!device) device = fused_device(device_, head_dim == 64 ? 64 : 128);
    return *device;
  }
  // The driver counts clusters of the whole GPU.
  bool shares_gpu() const {
    int sms = 0;
    check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device_.id), "SMs");
    return device_.num_sms < sms;
  }

  const DeviceInfo device_;
  const DecodeForm asked_;
  struct Choice {
    DecodeForm form;
    std::vector<std::string> lines;
  };
  std::map<int64_t, Choice> choices_;  // by capacity of tokens
  std::optional<FusedDevice> devices_[2];
};

FusedScope scope_of(const Op& op) {
  return op.attrs.as<ops::AttentionBlockAttrs>().projects ? FusedScope::projected : FusedScope::qkv;
}

// Weights and biases in the kernel's dtype: other dtypes are copied into `kept`.
class BlockOperands {
 public:
  BlockOperands(const LaunchArgs& args, std::vector<std::shared_ptr<DeviceMemory>>& kept)
      : args_(args), kept_(kept) {}

  const TensorView& in(BlockInput i) const {
    static const TensorView kNone;
    const auto index = static_cast<size_t>(i);
    return index < args_.call.in.size() ? args_.call.in[index] : kNone;
  }
  template <class T>
  T* at(BlockInput i) const {
    return reinterpret_cast<T*>(in(i).data);
  }
  const float* f32(BlockInput i) const {
    const TensorView& row = in(i);
    const bool as_it_is =
        row.dtype == DType::f32 && reinterpret_cast<uintptr_t>(row.data) % 16 == 0;
    if (row.data == nullptr || as_it_is) return row.as<const float>();
    kept_.push_back(row_as(args_, row, DType::f32));
    return reinterpret_cast<const float*>(kept_.back()->data());
  }

 private:
  const LaunchArgs& args_;
  std::vector<std::shared_ptr<DeviceMemory>>& kept_;
};

BoundKernel bind_block(const LaunchArgs& args, DecodeState& state) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::AttentionBlockAttrs>();
  std::vector<ValueType> types;
  for (const TensorView& view : call.in) {
    types.push_back(view.data == nullptr ? ValueType{} : ValueType{view.dtype, view.shape});
  }
  const FusedShape shape = fused_shape(*call.op, types);
  const FusedConfig config = state.config(shape, scope_of(*call.op));
  if (!args.whole_batch && shape.tokens > 1) {
    fail(ErrorCode::kUnsupported, "attention_block: micro-batches of {} tokens: one micro-batch",
         shape.tokens);
  }
  std::vector<std::shared_ptr<DeviceMemory>> kept;
  const BlockOperands in(args, kept);
  FusedArgs a{};
  a.rows = args.live(BatchAxis::token);
  a.sequences = args.live(BatchAxis::sequence);
  if (attrs.normed) a.a = in.at<const float>(BlockInput::a);
  if (!attrs.normed) a.normed = in.at<const __nv_bfloat16>(BlockInput::a);
  a.b = in.at<const __nv_bfloat16>(BlockInput::b);
  a.norm_w = in.f32(BlockInput::norm);
  if (a.b != nullptr) a.sum = call.out[0].as<float>();
  constexpr BlockInput kWeights[] = {BlockInput::wq, BlockInput::wk, BlockInput::wv,
                                     BlockInput::wo};
  constexpr BlockInput kBiases[] = {BlockInput::bq, BlockInput::bk, BlockInput::bv, BlockInput::bo};
  for (int i = 0; i < 4; ++i) {
    a.w[i] = in.at<const __nv_bfloat16>(kWeights[i]);
    a.bias[i] = in.f32(kBiases[i]);
  }
  if (attrs.out.bias_elsewhere) a.bias[3] = nullptr;
  a.position = in.at<const int32_t>(BlockInput::positions);
  a.slot = in.at<const int32_t>(BlockInput::slots);
  a.q_start = in.at<const int32_t>(BlockInput::q_start);
  a.kv_len = in.at<const int32_t>(BlockInput::kv_len);
  a.page_table = in.at<const int32_t>(BlockInput::page_table);
  kept.push_back(turns_table(args, attrs.rope.rope, in.in(BlockInput::factors)));
  a.table_stride = static_cast<int32_t>(in.in(BlockInput::page_table).shape[1]);
  a.turns = reinterpret_cast<const uint64_t*>(kept.back()->data());
  a.q_norm = in.f32(BlockInput::q_norm);
  a.k_norm = in.f32(BlockInput::k_norm);
  a.cache_k = in.at<__nv_bfloat16>(BlockInput::cache_k);
  a.cache_v = in.at<__nv_bfloat16>(BlockInput::cache_v);
  a.out = reinterpret_cast<__nv_bfloat16*>(call.out.back().data);
  const Shape& cache = in.in(BlockInput::cache_k).shape;
  a.num_slots = static_cast<int32_t>(cache[0] * cache[1]);
  a.pairs = static_cast<int32_t>(attrs.rope.rope.rotary_dim / 2);
  a.window = static_cast<int32_t>(attrs.attention.window);
  a.factor = attrs.rope.rope.attention_factor;
  a.scale = attrs.attention.scale;
  a.eps = attrs.qkv.norm.eps;
  a.qk_eps = attrs.rope.eps;
  a.interleaved = attrs.rope.rope.pairing == ops::RopePairing::interleaved;
  auto block = std::make_shared<FusedAttention>(shape, config, a, args.device.id);
  // An early launch asks for keys before its wait: only for earlier steps' keys.
  return [block, kept, early = args.whole_batch](LaunchContext context) {
    context.pdl = context.pdl && early;
    block->launch(context);
  };
}

}  // namespace

void set_decode(KernelTable& table, const DecodeForm& form) {
  const auto state = std::make_shared<DecodeState>(table.device(), form);
  table.add(
      ops::kAttentionBlock.kind,
      {.info =
           [state](const Op& op, TypeList in, TypeList, const DeviceInfo&) {
             return KernelInfo{to_string(state->config(fused_shape(op, in), scope_of(op))), 0};
           },
       .bind = [state](const LaunchArgs& args) { return bind_block(args, *state); }});
  table.set_rewrite({[state](Program program) { return state->rewrite(std::move(program)); },
                     [state] { return state->explain(); }});
  Join relays = table.join_of(kRelay);
  relays.plan = [state, plan = relays.plan](const Program& program, const LaunchRun& run) {
    return state->relays() ? plan(program, run) : LaunchGroup{};
  };
  table.set_join(std::move(relays));
}

}  // namespace braid::cuda
