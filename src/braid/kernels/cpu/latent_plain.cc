#include "braid/kernels/cpu/latent_plain.h"

#include "braid/kernels/cpu/attention/segments.h"
#include "braid/kernels/cpu/linear/expert_linear.h"

namespace braid::cpu {
namespace {

constexpr int64_t kBlock = 128;  // queries that meet a piece together

enum Input : size_t { kQ, kPositions, kKb, kVb, kCache, kStart, kLength, kPages };

// Keys per piece: weights are unpacked once for each piece, and a piece's data for all heads should
// stay in a cache.
int64_t piece_keys(int64_t H) {
  return std::clamp<int64_t>(4096 / H / 64 * 64, 64, 256);
}

}  // namespace

struct LatentPlain::Layout {
  int64_t piece;    // keys
  int64_t width;    // columns of a head's key and value
  int64_t latents;  // f32 [piece, R + Dr]
  int64_t keys;     // f32 [piece, H, Dn + Dr + Dv]
  int64_t queries;  // f32 [T, H, Dn + Dr], turned
  int64_t maxima;   // f32 [T, H]
  int64_t sums;     // f32 [T, H]
  int64_t weight;   // f32 [H, Dn, R], of a transposed k_b
  int64_t rows;     // i32 [H, piece], which all count from 0
  int64_t begin;    // i32 [H + 1]
  int64_t product;  // scratch of expert_linear
  int64_t blocks;   // f32, of each thread
  int64_t block_floats;
  int64_t total = 0;

  Layout(const ops::LatentSizes& n, bool transposed, int64_t T, DType k_b, DType v_b, int threads)
      : piece(piece_keys(n.H)),
        width(n.Dn + n.Dr + n.Dv),
        block_floats(round_up(segment_scratch_floats(std::max(n.Dn + n.Dr, n.Dv), kBlock), 16)) {
    const auto take = [&](int64_t bytes) {
      const int64_t at = total;
      total += round_up(bytes, 64);
      return at;
    };
    latents = take(piece * (n.R + n.Dr) * 4);
    keys = take(piece * n.H * width * 4);
    queries = take(T * n.H * (n.Dn + n.Dr) * 4);
    maxima = take(T * n.H * 4);
    sums = take(T * n.H * 4);
    weight = take(transposed ? n.H * n.Dn * n.R * 4 : 0);
    rows = take(n.H * piece * 4);
    begin = take((n.H + 1) * 4);
    const DType read = transposed ? DType::f32 : k_b;
    product = take(std::max(expert_linear_scratch_bytes(desc(n, read, threads)),
                            expert_linear_scratch_bytes(desc(n, v_b, threads))));
    blocks = take(threads * block_floats * 4);
  }

  ExpertLinearDesc desc(const ops::LatentSizes& n, const DType& dtype, int threads) const {
    return {.rows = piece * n.H,
            .rows_of_one = piece,
            .K = n.R,
            .weights = {&dtype, 1},
            .threads = threads};
  }
};

int64_t LatentPlain::scratch_bytes(const ops::LatentSizes& sizes, bool transposed, int64_t T,
                                   DType k_b, DType v_b, int threads) {
  if (T < ops::kFewestPlainTokens) return 0;
  return Layout(sizes, transposed, T, k_b, v_b, threads).total;
}

LatentPlain::LatentPlain(const OpCall& call, std::byte* scratch, int threads, Isa isa)
    : call_(call),
      a_(call.attrs<ops::LatentAttentionAttrs>()),
      n_(a_, call.in),
      at_(std::make_shared<const Layout>(n_, a_.transposed, call.in[kQ].shape[0],
                                         call.in[kKb].dtype, call.in[kVb].dtype, threads)),
      scratch_(scratch),
      threads_(threads),
      isa_(isa),
      inv_freq_(ops::rope_frequencies(a_.rope, nullptr)),
      k_b_(call.in[kKb]) {
  if (a_.transposed) {
    k_b_ = make_view(scratch_ + at_->weight, DType::f32, {n_.H, n_.Dn, n_.R});
  }
}

void LatentPlain::begin(const Team& team) const {
  const Range tokens = team.share(call_.rows());
  const int64_t D = n_.Dn + n_.Dr;
  auto* const turned = at<float>(at_->queries);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const float* q = call_.in[kQ].row_as<const float>(t);
    for (int64_t h = 0; h < n_.H; ++h) {
      float* to = turned + (t * n_.H + h) * D;
      std::copy_n(q + h * D, n_.Dn, to);
      ops::turn(a_.rope, inv_freq_, call_.in[kPositions].as<const int32_t>()[t], q + h * D + n_.Dn,
                to + n_.Dn);
    }
  }
  if (a_.transposed) {
    std::byte* const base = scratch_ + at_->weight;
    auto* const row = at<float>(at_->blocks) + team.index * at_->block_floats;
    const Range heads = team.share(n_.H);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      const TensorView from = matrix(call_.in[kKb], h);
      float* const to = reinterpret_cast<float*>(base) + h * n_.Dn * n_.R;
      for (int64_t r = 0; r < n_.R; ++r) {
        dequantize_row(from.dtype, from.row(r), row, n_.Dn);
        for (int64_t d = 0; d < n_.Dn; ++d) to[d * n_.R + r] = row[d];
      }
    }
  }
  team.barrier();
}

void LatentPlain::run(int64_t s, const Team& team) const {
  const int64_t len = call_.in[kLength].as<const int32_t>()[s];
  for (int64_t first = 0; first < len; first += at_->piece) {
    const Range keys{first, std::min(len, first + at_->piece)};
    load_latents(s, keys, team);
    team.barrier();
    make_keys(keys.size(), k_b_, 0, team);
    team.barrier();
    make_keys(keys.size(), call_.in[kVb], n_.Dn + n_.Dr, team);
    team.barrier();
    attend(s, keys, team);
    team.barrier();
  }
}

void LatentPlain::load_latents(int64_t s, Range keys, const Team& team) const {
  const TensorView& cache = call_.in[kCache];
  const auto* pages = call_.in[kPages].row_as<const int32_t>(s);
  const int64_t BS = cache.shape[1], width = n_.R + n_.Dr;
  const Range mine = team.share(keys.size());
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int64_t j = keys.begin + i;
    float* const latent = at<float>(at_->latents) + i * width;
    dequantize_row(cache.dtype, cache.row(pages[j / BS] * BS + j % BS), latent, width);
    for (int64_t h = 0; h < n_.H; ++h) {
      std::copy_n(latent + n_.R, n_.Dr, at<float>(at_->keys) + (i * n_.H + h) * at_->width + n_.Dn);
    }
  }
  auto *rows = at<int32_t>(at_->rows), *begin = at<int32_t>(at_->begin);
  const Range heads = team.share(n_.H);
  for (int64_t h = heads.begin; h < heads.end; ++h) {
    begin[h + 1] = static_cast<int32_t>((h + 1) * keys.size());
    for (int64_t i = 0; i < keys.size(); ++i) {
      rows[h * keys.size() + i] = static_cast<int32_t>(i);
    }
  }
  if (team.index == 0) begin[0] = 0;
}

// Columns from `column` on of all heads' keys and values: weight_h c, for each latent.
void LatentPlain::make_keys(int64_t rows, const TensorView& weight, int64_t column,
                            const Team& team) const {
  BRAID_CHECK(rows <= at_->piece, "{} keys in a piece of {}", rows, at_->piece);
  expert_linear({.x = at<float>(at_->latents),
                 .ldx = n_.R + n_.Dr,
                 .row = at<int32_t>(at_->rows),
                 .begin = at<int32_t>(at_->begin),
                 .weights = std::array{ExpertWeight{weight}},
                 .y = at<float>(at_->keys) + column,
                 .ldy = n_.H * at_->width,
                 .y_step = at_->width},
                at_->desc(n_, weight.dtype, threads_), best_linear_isa(isa_),
                scratch_ + at_->product, team);
}

// Blocks of queries meet the piece's keys. Sums wait in the output for the next piece.
void LatentPlain::attend(int64_t s, Range keys, const Team& team) const {
  const auto* q_start = call_.in[kStart].as<const int32_t>();
  const int64_t t0 = q_start[s] - call_.part->begin.token, n = q_start[s + 1] - q_start[s];
  const int64_t before = call_.in[kLength].as<const int32_t>()[s] - n, D = n_.Dn + n_.Dr;
  const auto block = pick_isa(isa_, BRAID_EACH_ISA(segment_attention_block));
  // Threads take turns: early blocks see fewer keys.
  int64_t unit = 0;
  for (int64_t row = 0; row < n; row += kBlock) {
    const int64_t rows = std::min(kBlock, n - row), last = before + row + rows - 1;
    if (last < keys.begin) continue;
    for (int64_t h = 0; h < n_.H; ++h) {
      if (unit++ % team.count != team.index) continue;
      const int64_t t = t0 + row;
      float* const key = at<float>(at_->keys) + h * at_->width;
      float* const out = call_.out[0].row_as<float>(t) + h * n_.Dv;
      const SegmentKeys piece{.k = key,
                              .v = key + D,
                              .stride = n_.H * at_->width,
                              .rows = keys.size(),
                              .position = keys.begin};
      block({.q = at<float>(at_->queries) + (t * n_.H + h) * D,
             .q_stride = n_.H * D,
             .rows = rows,
             .position = before + row,
             .head_dim = D,
             .value_dim = n_.Dv,
             .scale = a_.scale,
             .window_right = 0,
             .keys = {&piece, 1},
             .state_o = out,
             .state_stride = n_.H * n_.Dv,
             .state_l = at<float>(at_->sums) + t * n_.H + h,
             .state_m = at<float>(at_->maxima) + t * n_.H + h,
             .stat_stride = n_.H,
             .load_state = keys.begin > 0,
             .out = last < keys.end ? out : nullptr,
             .out_stride = n_.H * n_.Dv,
             .room = kBlock,
             .scratch = at<float>(at_->blocks) + team.index * at_->block_floats});
    }
  }
}

}  // namespace braid::cpu
