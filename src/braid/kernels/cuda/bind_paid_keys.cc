// Binds what orders the next layer's keys: attention that queries paid, and its mean.
#include "braid/backend/cuda/memory.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/thinning/device/key_scores.h"
#include "braid/kernels/cuda/thinning/device/paid_keys.h"

namespace braid::cuda {
namespace {

template <class T>
std::shared_ptr<DeviceMemory> upload(const LaunchArgs& args, const std::vector<T>& host) {
  const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
  auto memory = std::make_shared<CudaMemory>(args.device.id, std::max<int64_t>(bytes, 1));
  check_cuda(
      cudaMemcpy(memory->data(), host.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
      "a table");
  return memory;
}

PaidVisits visits_of(const Op& op, TypeList in) {
  std::vector<int64_t> rows;
  for (size_t i = 1; i < in.size(); ++i) rows.push_back(in[i].shape[1]);
  return paid_visits(op.attrs.as<ops::PaidKeysAttrs>(), rows);
}

KernelInfo paid_info(const Op& op, TypeList in, TypeList, const DeviceInfo&) {
  verify_scored_heads("paid_keys", in[0].dtype, in[0].shape[3]);
  return {"paid_keys.cuda", paid_keys_workspace(visits_of(op, in))};
}

BoundKernel bind_paid(const LaunchArgs& args) {
  const OpCall& call = args.call;
  std::vector<ValueType> types;
  for (const TensorView& in : call.in) types.push_back({in.dtype, in.shape});
  auto visits = std::make_shared<const PaidVisits>(visits_of(*call.op, types));
  prepare_paid_keys(call.in[0].dtype, call.in[0].shape[3]);
  return [&call, visits, workspace = args.workspace, runs = upload(args, visits->runs),
          seen = upload(args, visits->visits)](const LaunchContext& context) {
    PaidKeysParams p{.q = call.in[0],
                     .k = {},
                     .paid = {},
                     .visits = visits.get(),
                     .runs = reinterpret_cast<const ScoringRun*>(runs->data()),
                     .seen = reinterpret_cast<const ScoringVisit*>(seen->data()),
                     .scale = call.attrs<ops::PaidKeysAttrs>().segments.scale,
                     .workspace = workspace};
    for (size_t i = 0; i < call.out.size(); ++i) p.k[i] = call.in[i + 1], p.paid[i] = call.out[i];
    paid_keys(p, context);
  };
}

KernelInfo scores_info(const Op& op, TypeList in, TypeList, const DeviceInfo&) {
  const size_t parts = op.attrs.as<ops::KeyScoresAttrs>().parts.size();
  if (parts > kMostThinnedParts || in.size() - 1 > KeyScoresParams::kMostPaid) {
    fail(ErrorCode::kUnsupported, "key_scores: {} parts with {} sums on a GPU, at most {} with {}",
         parts, in.size() - 1, kMostThinnedParts, KeyScoresParams::kMostPaid);
  }
  return {"key_scores.cuda", 0};
}

BoundKernel bind_scores(const LaunchArgs& args) {
  const OpCall& call = args.call;
  std::vector<KeyScoresParams::Part> parts;
  std::vector<ops::ScoredPart::Sum> sums;
  std::vector<ops::ScoredPart::Readers> readers;
  for (const ops::ScoredPart& p : call.attrs<ops::KeyScoresAttrs>().parts) {
    const auto first_sum = static_cast<int32_t>(sums.size());
    const auto first_reader = static_cast<int32_t>(readers.size());
    sums.insert(sums.end(), p.sums.begin(), p.sums.end());
    readers.insert(readers.end(), p.readers.begin(), p.readers.end());
    parts.push_back({.row = p.row,
                     .paid_row = p.paid_row,
                     .rows = static_cast<int32_t>(p.rows),
                     .queries = static_cast<int32_t>(p.queries),
                     .sees = static_cast<int32_t>(p.sees),
                     .sums_begin = first_sum,
                     .sums_end = static_cast<int32_t>(sums.size()),
                     .readers_begin = first_reader,
                     .readers_end = static_cast<int32_t>(readers.size())});
  }
  load_key_scores();
  return [&call, parts, sums = upload(args, sums),
          readers = upload(args, readers)](const LaunchContext& context) {
    KeyScoresParams p{.order = call.in[0].as<const int32_t>(),
                      .paid = {},
                      .scores = call.out[0].as<float>(),
                      .parts = parts,
                      .sums = reinterpret_cast<const ops::ScoredPart::Sum*>(sums->data()),
                      .readers = reinterpret_cast<const ops::ScoredPart::Readers*>(readers->data()),
                      .heads = static_cast<int>(call.in[0].shape[2])};
    for (size_t i = 1; i < call.in.size(); ++i) p.paid[i - 1] = call.in[i].as<const float>();
    key_scores(p, context);
  };
}

}  // namespace

void add_paid_keys_kernels(KernelTable& table) {
  table.add(ops::kPaidKeys.kind, {.info = paid_info, .bind = bind_paid});
  table.add(ops::kKeyScores.kind, {.info = scores_info, .bind = bind_scores});
}

}  // namespace braid::cuda
