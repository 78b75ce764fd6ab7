#include <algorithm>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"

namespace braid::cuda {
namespace {

struct Dim {
  int64_t size;
  int64_t stride;  // elements; 1 for dimension 0
  int box;
};

template <size_t kRank>
void encode(CUtensorMap* map, DType dtype, const void* data, const Dim (&dims)[kRank],
            const char* what) {
  MapDim map_dims[kRank];
  for (size_t i = 0; i < kRank; ++i) {
    // A dimension of size 1 may have any stride; the driver wants a plausible stride.
    const int64_t stride = dims[i].size == 1 || dims[i].stride == 0 ? 8 : dims[i].stride;
    map_dims[i] = {dims[i].size, 2 * stride, dims[i].box};
  }
  *map = make_tensor_map(
      dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      CU_TENSOR_MAP_SWIZZLE_128B, kMapWide, data, map_dims, what);
}

}  // namespace

void make_tensor_maps(const AttentionDesc& desc, const AttentionConfig& config,
                      HopperParams& params) {
  const AttentionPlan& plan = params.plan;
  params.kv_box_rows =
      desc.page_size ? std::min(desc.page_size, config.block_n) : config.block_n / config.cluster;
  for (int i = 0; i < plan.num_q; ++i) {
    const QTensor& q = plan.q[i];
    const Strides& s = q.q_stride;
    const Dim dims[] = {
        {desc.head_dim_qk, 1, 64},
        {plan.pack, s.head, plan.pack},
        {q.starts ? q.rows : q.length, s.token, plan.unit_tokens},
        {plan.num_head_items, s.head * plan.pack, 1},
        {q.starts ? 1 : desc.batch, s.batch, 1},
    };
    encode(&params.q_map[i], desc.dtype, q.q, dims, "attention's q");
  }
  const auto encode_kv = [&](int j, int map, int box) {
    const KvTensor& kv = plan.kv[j];
    const int64_t tokens = desc.page_size ? desc.page_size : kv.length;
    const int64_t outer = desc.page_size ? kv.num_pages : desc.batch;
    const Dim k_dims[] = {{desc.head_dim_qk, 1, 64},
                          {tokens, kv.k_stride.token, box},
                          {desc.num_kv_heads, kv.k_stride.head, 1},
                          {outer, kv.k_stride.batch, 1}};
    const Dim v_dims[] = {{desc.head_dim_v, 1, 64},
                          {tokens, kv.v_stride.token, box},
                          {desc.num_kv_heads, kv.v_stride.head, 1},
                          {outer, kv.v_stride.batch, 1}};
    encode(&params.k_map[map][j], desc.dtype, kv.k, k_dims, "attention's k");
    encode(&params.v_map[map][j], desc.dtype, kv.v, v_dims, "attention's v");
  };
  int run = 0;
  for (int j = 0; j < kMaxKvSegments; ++j) {
    while (j >= plan.kv_run_begin[run + 1] && run + 1 < kMaxKvSegments) ++run;
    if (plan.kv[j].length == 0) continue;
    encode_kv(j, 0, params.kv_box_rows);
    if (plan.kv_run_begin[run + 1] - plan.kv_run_begin[run] > 1) {
      encode_kv(j, 1, kPartRows);
      encode_kv(j, 2, kKeyPiece);
    }
  }
}

}  // namespace braid::cuda
