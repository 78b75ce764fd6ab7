#include "braid/kernels/cuda/thinning/device/ordered_rows.h"

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

// A thread per word in a row of a query head.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const Word* from, Word* to, const int32_t* order, int64_t first, int64_t rows,
                int heads, int group, int words, bool restore) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / words / heads;
  if (row >= rows) return;
  const int h = static_cast<int>(i / words % heads), word = static_cast<int>(i % words);
  const int64_t own = first + order[(first + row) * (heads / group) + h / group];
  const int64_t a = ((first + row) * heads + h) * words + word,
                b = (own * heads + h) * words + word;
  to[restore ? b : a] = from[restore ? a : b];
}

template <class Word>
void launch(const OrderedRowsParams& p, const ops::OrderedPart& part,
            const LaunchContext& context) {
  const int words = static_cast<int>(p.row_bytes / static_cast<int64_t>(sizeof(Word)));
  const auto blocks =
      static_cast<unsigned>(ceil_div(part.rows * p.heads * words, int64_t{kThreads}));
  const auto* from = reinterpret_cast<const Word*>(p.restore ? p.ordered : p.own);
  auto* to = reinterpret_cast<Word*>(p.restore ? p.own : p.ordered);
  launch_kernel(context, rows_kernel<Word>, dim3(blocks), kThreads, 0, from, to, p.order, part.row,
                part.rows, p.heads, p.group, words, p.restore);
}

}  // namespace

void load_ordered_rows() {
  load_kernel(rows_kernel<uint4>);
  load_kernel(rows_kernel<uint16_t>);
}

void ordered_rows(const OrderedRowsParams& p, LaunchContext context) {
  context.pdl = false;
  if (p.row_bytes % 2 != 0) {
    fail(ErrorCode::kUnsupported, "rows of {} bytes in order, wanted an even number", p.row_bytes);
  }
  for (const ops::OrderedPart& part : p.parts) {
    if (part.rows == 0) continue;
    p.row_bytes % 16 == 0 ? launch<uint4>(p, part, context) : launch<uint16_t>(p, part, context);
  }
}

}  // namespace braid::cuda
