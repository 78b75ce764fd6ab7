#include "braid/kernels/cuda/attention/paged_call.h"

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

struct HeadSpan {
  int64_t first_kv = 0;
  int64_t kv_heads = 0;
};

// Segment attention knows only whole, equal groups.
HeadSpan equal_groups(const ops::AttentionAttrs& a, int64_t q_heads, int64_t cached_heads) {
  const int64_t first = a.head_offset / a.group;
  const int64_t last = (q_heads - 1 + a.head_offset) / a.group;
  const bool equal = first == last || (a.head_offset % a.group == 0 && q_heads % a.group == 0);
  if (!equal) {
    fail(ErrorCode::kUnsupported,
         "segment attention: {} query heads from head {} on, in groups of {}, are not whole groups",
         q_heads, a.head_offset, a.group);
  }
  if (last >= cached_heads) {
    fail(ErrorCode::kInvalidArgument, "segment attention: KV heads {}..{} of a cache of {}", first,
         last, cached_heads);
  }
  return {first, last - first + 1};
}

int to_int(int64_t x) {
  if (x < 0 || x > 1 << 28) {
    fail(ErrorCode::kInvalidArgument, "segment attention: size {} (at most {})", x, 1 << 28);
  }
  return static_cast<int>(x);
}

const std::byte* at_head(const TensorView& cache, int64_t head) {
  return cache.data + bytes_of(cache.dtype, head * cache.shape[3]);
}

}  // namespace

PagedCall make_paged_call(const ops::AttentionAttrs& attrs, const PagedOperands& x) {
  const int64_t D = attrs.head_dim;
  if (attrs.softcap > 0) {
    fail(ErrorCode::kUnsupported, "segment attention: softcap {} (none)", attrs.softcap);
  }
  const DType dtype = x.k_cache.dtype;
  for (const TensorView* view : {&x.q, &x.v_cache, &x.out}) {
    if (view->dtype != dtype) {
      fail(ErrorCode::kUnsupported, "segment attention: {} beside a cache of {} (the same)",
           name(view->dtype), name(dtype));
    }
  }
  if (x.k_cache.shape.rank() != 4 || x.v_cache.shape.rank() != 4 || x.q.shape.rank() != 2 ||
      x.k_cache.shape != x.v_cache.shape || x.k_cache.shape[3] != D || x.q.shape[1] % D != 0 ||
      x.out.shape != x.q.shape) {
    fail(ErrorCode::kInvalidArgument,
         "segment attention: q {}, out {}, caches {} and {} do not fit head dim {}",
         to_string(x.q.shape), to_string(x.out.shape), to_string(x.k_cache.shape),
         to_string(x.v_cache.shape), D);
  }
  const int64_t q_heads = x.q.shape[1] / D;
  const int64_t page = x.k_cache.shape[1];
  const int64_t sequences = x.page_table.shape[0];
  const HeadSpan heads = equal_groups(attrs, q_heads, x.k_cache.shape[2]);

  PagedCall call;
  call.desc.dtype = dtype;
  call.desc.batch = to_int(sequences);
  call.desc.num_q_heads = to_int(q_heads);
  call.desc.num_kv_heads = to_int(heads.kv_heads);
  call.desc.head_dim_qk = call.desc.head_dim_v = to_int(D);
  call.desc.scale = attrs.scale;
  call.desc.window_left = attrs.window > 0 ? to_int(attrs.window - 1) : kUnlimited;
  call.desc.window_right = 0;
  call.desc.page_size = to_int(page);

  const int64_t element = bytes_of(dtype, 1);
  QTensor& q = call.q;
  q.q = x.q.data;
  q.o = x.out.data;
  q.q_stride = {0, x.q.row_bytes / element, D};
  q.o_stride = {0, x.out.row_bytes / element, D};
  q.starts = x.spans;
  q.offsets = x.spans + sequences + 1;
  q.rows = x.q.shape[0];
  q.length = to_int(x.q.shape[0]);
  q.kv_end = 1;

  KvTensor& kv = call.kv;
  const int64_t token = x.k_cache.shape[2] * D;
  kv.k = at_head(x.k_cache, heads.first_kv);
  kv.v = at_head(x.v_cache, heads.first_kv);
  kv.k_stride = kv.v_stride = {page * token, token, D};
  kv.lengths = x.spans + 2 * sequences + 1;
  kv.page_table = x.page_table.as<const int32_t>();
  kv.page_table_stride = to_int(x.page_table.row_bytes / 4);
  kv.num_pages = to_int(x.k_cache.shape[0]);
  kv.length = to_int(x.page_table.shape[1] * page);
  verify(call.desc, call.params());
  return call;
}

}  // namespace braid::cuda
