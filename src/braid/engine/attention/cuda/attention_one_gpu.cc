#include "braid/engine/attention/cuda/attention_one_gpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "braid/job/packing.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"
#include "braid/ops/segment_attention.h"
#include "braid/tensor/half.h"

namespace braid::attention_modes {

void fill_rows(std::byte* out, Tensor tensor, int64_t b, int64_t position, int64_t rows,
               int64_t step, int64_t width, cudaStream_t stream) {
  if (rows == 0) return;
  cuda::random_fill({.out = make_view(out, DType::bf16, Shape{rows, width}),
                     .first = position * width,
                     .index_stride = step * width,
                     .seed = tensor * 1000 + static_cast<uint64_t>(b)},
                    {stream});
}

PlainCall::PlainCall(const ModePlan& plan, int rank, const cuda::DeviceInfo& device)
    : workspace_(device.id, 64), num_sms_(device.num_sms) {
  const Program& program = plan.programs[rank];
  const SequenceAttention& a = plan.attention;
  int64_t pairs = 0, heads = 0, kv_heads = 0;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kSegmentAttention) continue;
    const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
    heads = attrs.heads, kv_heads = attrs.kv_heads;
    for (const ops::QSegment& q : attrs.q) {
      for (int i = q.kv_begin; i < q.kv_end; ++i) {
        pairs += q.rows * attrs.kv[i].rows;
      }
    }
  }
  const int64_t keys = a.kv.length() + a.joint_kv;
  const int64_t queries = pairs / std::max<int64_t>(keys, 1);
  if (queries == 0 || heads % kv_heads != 0 || a.masked()) return;
  const auto room = [&](int64_t rows, int64_t h) {
    memory_.push_back(
        std::make_unique<cuda::CudaMemory>(device.id, 2 * a.batch * rows * h * a.head_dim));
    return memory_.back()->data();
  };
  const auto strides = [&](int64_t rows, int64_t h) {
    return cuda::Strides{rows * h * a.head_dim, h * a.head_dim, a.head_dim};
  };
  desc_.batch = static_cast<int>(a.batch);
  desc_.num_q_heads = static_cast<int>(heads);
  desc_.num_kv_heads = static_cast<int>(kv_heads);
  desc_.head_dim_qk = desc_.head_dim_v = static_cast<int>(a.head_dim);
  desc_.scale = a.scale;
  q_.q = room(queries, heads);
  q_.o = room(queries, heads);
  q_.q_stride = q_.o_stride = strides(queries, heads);
  q_.length = static_cast<int32_t>(queries);
  q_.kv_end = 1;
  kv_.k = room(keys, kv_heads);
  kv_.v = room(keys, kv_heads);
  kv_.k_stride = kv_.v_stride = strides(keys, kv_heads);
  kv_.length = static_cast<int32_t>(keys);
  const Tensor tensors[] = {kQ, kQ, kK, kV};
  for (size_t i : {0u, 2u, 3u}) {
    const int64_t width = (i == 0 ? heads : kv_heads) * a.head_dim;
    fill_rows(memory_[i]->data(), tensors[i], 0, 0, memory_[i]->bytes() / 2 / width, 1, width,
              nullptr);
  }
  cuda::check_cuda(cudaDeviceSynchronize(), "inputs");
  config_ = cuda::choose(desc_, {{&q_, 1}, {&kv_, 1}}, cuda::attention_device(device));
  there_ = true;
}
void PlainCall::launch(cudaStream_t stream) {
  cuda::attention(desc_, {{&q_, 1}, {&kv_, 1}}, config_, workspace_.data(), stream, num_sms_);
}

namespace {

struct Sampling {
  int64_t first, step, count;
  int64_t length;  // a sequence with its prefix
  std::vector<int64_t> sequences;
};
Sampling sampling_of(const SequenceAttention& a) {
  const int64_t L = a.q.length();
  const int64_t step = std::max<int64_t>(1, L / 256) | 1;
  Sampling s{a.joint_q, step, (L + step - 1) / step, a.joint_q + L, {0}};
  if (a.batch > 1) s.sequences.push_back(a.batch - 1);
  return s;
}

}  // namespace

Samples samples_of(const SequenceAttention& a, int rank, const TensorView& o) {
  const Sampling s = sampling_of(a);
  const int64_t width = a.q_heads * a.head_dim;
  Samples out;
  for (const int64_t b : s.sequences) {
    int64_t row = b * o.shape[1];
    for (const SequenceRun& run : a.q.ranks[rank]) {
      const int64_t skip = (s.step - (run.position - s.first) % s.step) % s.step;
      const int64_t n = run.rows > skip ? (run.rows - skip + s.step - 1) / s.step : 0;
      for (int64_t i = 0; i < n; ++i) {
        out.positions.push_back(b * s.length + run.position + skip + i * s.step);
      }
      if (n > 0) {
        const size_t at = out.rows.size();
        out.rows.resize(at + static_cast<size_t>(n * width));
        cuda::check_cuda(
            cudaMemcpy2D(out.rows.data() + at, 2 * width, o.data + (row + skip) * 2 * width,
                         s.step * 2 * width, 2 * width, n, cudaMemcpyDeviceToHost),
            "reading the result");
      }
      row += run.rows;
    }
  }
  return out;
}

// Sampled rows of the result by a single GPU: all keys of a sequence in one call.
Samples one_gpu(const SequenceAttention& a, int device) {
  const Sampling s = sampling_of(a);
  const int64_t width = a.q_heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
  const int64_t keys = a.joint_kv + a.kv.length();
  cuda::CudaMemory q(device, 2 * s.count * width), o(device, 2 * s.count * width),
      k(device, 2 * keys * kv_width), v(device, 2 * keys * kv_width), workspace(device, 64);
  std::byte* const own_k = k.data() + 2 * a.joint_kv * kv_width;
  std::byte* const own_v = v.data() + 2 * a.joint_kv * kv_width;
  cuda::AttentionDesc desc{.num_q_heads = static_cast<int>(a.q_heads),
                           .num_kv_heads = static_cast<int>(a.kv_heads)};
  desc.head_dim_qk = desc.head_dim_v = static_cast<int>(a.head_dim);
  desc.scale = a.scale;
  cuda::QTensor query{.q = q.data(), .o = o.data()};
  query.q_stride = query.o_stride = {s.count * width, width, a.head_dim};
  query.length = static_cast<int32_t>(s.count);
  query.kv_end = 1;
  cuda::KvTensor key{.k = k.data(), .v = v.data()};
  key.k_stride = key.v_stride = {keys * kv_width, kv_width, a.head_dim};
  key.length = static_cast<int32_t>(keys);
  const cuda::AttentionParams params{{&query, 1}, {&key, 1}};
  const auto config = cuda::choose(desc, params, cuda::attention_device());
  Samples out;
  for (const int64_t b : s.sequences) {
    fill_rows(q.data(), kQ, b, s.first, s.count, s.step, width, nullptr);
    fill_rows(k.data(), kJointK, b, 0, a.joint_kv, 1, kv_width, nullptr);
    fill_rows(v.data(), kJointV, b, 0, a.joint_kv, 1, kv_width, nullptr);
    fill_rows(own_k, kK, b, a.joint_kv, a.kv.length(), 1, kv_width, nullptr);
    fill_rows(own_v, kV, b, a.joint_kv, a.kv.length(), 1, kv_width, nullptr);
    cuda::attention(desc, params, config, workspace.data(), nullptr);
    const size_t at = out.rows.size();
    out.rows.resize(at + static_cast<size_t>(s.count * width));
    for (int64_t i = 0; i < s.count; ++i) {
      out.positions.push_back(b * s.length + s.first + i * s.step);
    }
    cuda::check_cuda(
        cudaMemcpy(out.rows.data() + at, o.data(), 2 * s.count * width, cudaMemcpyDeviceToHost),
        "one GPU's result");
  }
  return out;
}

void gather_samples(job::Job& job, std::vector<Samples>& samples) {
  const Samples& mine = samples[static_cast<size_t>(job.process())];
  const auto text = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(values[0]));
  };
  const auto read = [](const std::string& bytes, auto& values) {
    values.resize(bytes.size() / sizeof(values[0]));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  };
  const std::vector<std::string> packed =
      job.gather("samples", job::Packer().add(text(mine.positions)).add(text(mine.rows)).bytes());
  for (size_t p = 1; p < packed.size(); ++p) {
    job::Unpacker fields(packed[p]);
    read(fields.text(), samples[p].positions);
    read(fields.text(), samples[p].rows);
  }
}

double largest_difference(const Samples& got, const Samples& want, int64_t width) {
  double worst = 0;
  for (size_t i = 0; i < got.positions.size(); ++i) {
    const auto at = std::ranges::lower_bound(want.positions, got.positions[i]);
    BRAID_CHECK(at != want.positions.end() && *at == got.positions[i], "a row of no position");
    const uint16_t* a = got.rows.data() + static_cast<int64_t>(i) * width;
    const uint16_t* b = want.rows.data() + (at - want.positions.begin()) * width;
    for (int64_t d = 0; d < width; ++d) {
      const double error = std::abs(double{to_float(bf16{a[d]})} - double{to_float(bf16{b[d]})});
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    }
  }
  return worst;
}

}  // namespace braid::attention_modes
