// Binds latent_append and latent_attention. The absorbed form is a product per head, attention of
// all heads over a single KV head of latents, and again a product per head. latent_plain.h has the
// plain form.
#include <optional>

#include "braid/kernels/cpu/attention/attention.h"
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/latent_plain.h"
#include "braid/kernels/cpu/linear/expert_linear.h"
#include "braid/kernels/cpu/pointwise/combine.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/latent_attention.h"

namespace braid::cpu {
namespace {

// Each thread has separate tokens: a row is short beside the products around it.
BoundKernel bind_append(const LaunchArgs& args) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::LatentAppendAttrs>();
  struct Held {
    std::vector<double> inv_freq;
    std::vector<float> norm;
    std::vector<std::vector<float>> rows;  // of each thread
  };
  auto held =
      std::make_shared<Held>(Held{ops::rope_frequencies(a.rope, nullptr), widen(call.in[1]), {}});
  held->rows.assign(args.threads, std::vector<float>(call.in[0].cols()));
  return [&call, &a, held](const Team& team) {
    const Range mine = team.share(call.rows());
    std::vector<float>& row = held->rows[team.index];
    const auto R = std::ssize(held->norm);
    for (int64_t t = mine.begin; t < mine.end; ++t) {
      const int32_t slot = call.in[3].as<const int32_t>()[t];
      if (slot < 0) continue;
      const float* x = call.in[0].row_as<const float>(t);
      double squares = 0;
      for (int64_t i = 0; i < R; ++i) squares += static_cast<double>(x[i]) * x[i];
      const auto inverse =
          static_cast<float>(1 / std::sqrt(squares / static_cast<double>(R) + a.eps));
      for (int64_t i = 0; i < R; ++i) row[i] = x[i] * inverse * held->norm[i];
      ops::turn(a.rope, held->inv_freq, call.in[2].as<const int32_t>()[t], x + R, &row[R]);
      quantize_row(call.in[4].dtype, row.data(), call.in[4].row(slot), std::ssize(row));
    }
  };
}

// The absorbed form's scratch, for the rows of its sequences: at most A rows.
struct Scratch {
  int64_t A = 0;
  int64_t width = 0;  // columns in a row of queries and results
  int64_t tokens = 0, start = 0, queries = 0, results = 0, rows = 0, result_rows = 0, begin = 0,
          product = 0, attention = 0, plain = 0, total = 0;

  template <class Operand>
  Scratch(const ops::LatentSizes& n, const ops::LatentAttentionAttrs& a,
          std::span<const Operand> in, int threads)
      : width(n.R + n.Dr) {
    const auto take = [&](int64_t bytes) {
      const int64_t at = total;
      total += round_up(bytes, 64);
      return at;
    };
    const int64_t T = in[0].shape[0], S = in[7].shape[0];
    const DType k_b = in[2].dtype, v_b = in[3].dtype;
    A = ops::most_absorbed_tokens(n) < T / S ? S * ops::most_absorbed_tokens(n) : T;
    tokens = take(A * 4);
    start = take((S + 1) * 4);
    queries = take(A * n.H * std::max(width, n.Dv) * 4);
    results = take(A * n.H * width * 4);
    rows = take(A * n.H * 4);
    result_rows = take(A * n.H * 4);
    begin = take((n.H + 1) * 4);
    product = take(std::max(
        a.transposed ? expert_linear_scratch_bytes(desc(n, n.Dn, k_b, threads)) : threads * n.R * 4,
        expert_linear_scratch_bytes(desc(n, n.R, v_b, threads))));
    attention = take(attention_scratch_bytes(n.H, n.H, width, threads));
    plain = take(LatentPlain::scratch_bytes(n, a.transposed, T, k_b, v_b, threads));
  }

  // Each head's product over its K columns in all rows.
  ExpertLinearDesc desc(const ops::LatentSizes& n, int64_t K, const DType& dtype,
                        int threads) const {
    return {.rows = A * n.H, .rows_of_one = A, .K = K, .weights = {&dtype, 1}, .threads = threads};
  }
};

// A sequence takes the form with fewer operations (takes_plain_form), by its own lengths alone.
class BoundLatent {
 public:
  BoundLatent(const LaunchArgs& args, Isa isa)
      : call_(args.call),
        a_(call_.attrs<ops::LatentAttentionAttrs>()),
        n_(a_, call_.in),
        k_b_(call_.in[2].dtype),
        v_b_(call_.in[3].dtype),
        at_(n_, a_, call_.in, args.threads),
        base_(args.workspace),
        threads_(args.threads),
        isa_(isa),
        inv_freq_(ops::rope_frequencies(a_.rope, nullptr)) {
    BRAID_CHECK(at_.width <= kMaxHeadDim, "latents of {}", at_.width);
    if (call_.in[0].shape[0] >= ops::kFewestPlainTokens) {
      plain_.emplace(call_, base_ + at_.plain, threads_, isa);
    }
  }

  void operator()(const Team& team) const {
    const int64_t A = choose(team);
    if (A > 0) absorbed(A, team);
    if (A == call_.rows()) return;
    plain_->begin(team);
    for (int64_t s = 0; s < call_.extents().sequence; ++s) {
      if (is_plain(s)) plain_->run(s, team);
    }
  }

 private:
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  int64_t query() const { return n_.Dn + n_.Dr; }
  int64_t new_tokens(int64_t s) const {
    const auto* q_start = call_.in[5].as<const int32_t>();
    return q_start[s + 1] - q_start[s];
  }
  bool is_plain(int64_t s) const {
    return ops::takes_plain_form(n_, new_tokens(s), call_.in[6].as<const int32_t>()[s]);
  }

  // The absorbed sequences' tokens, packed: their number, and where each sequence begins.
  int64_t choose(const Team& team) const {
    auto *tokens = at<int32_t>(at_.tokens), *start = at<int32_t>(at_.start);
    const bool writes = team.index == 0;
    int64_t count = 0;
    for (int64_t s = 0; s < call_.extents().sequence; ++s) {
      if (writes) start[s] = static_cast<int32_t>(count);
      if (is_plain(s)) continue;
      const int64_t t0 = call_.in[5].as<const int32_t>()[s] - call_.part->begin.token;
      for (int64_t i = 0; i < new_tokens(s); ++i, ++count) {
        if (writes) tokens[count] = static_cast<int32_t>(t0 + i);
      }
    }
    BRAID_CHECK(count <= at_.A, "{} tokens of the absorbed form, room for {}", count, at_.A);
    if (writes) start[call_.extents().sequence] = static_cast<int32_t>(count);
    team.barrier();
    return count;
  }

  void absorbed(int64_t A, const Team& team) const {
    const auto* tokens = at<int32_t>(at_.tokens);
    auto* queries = at<float>(at_.queries);
    // Head h has rows (a, h) among queries and results.
    auto *rows = at<int32_t>(at_.rows), *result_rows = at<int32_t>(at_.result_rows);
    auto* begin = at<int32_t>(at_.begin);
    const Range heads = team.share(n_.H), mine = team.share(A);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      begin[h + 1] = static_cast<int32_t>((h + 1) * A);
      for (int64_t a = 0; a < A; ++a) {
        rows[h * A + a] = static_cast<int32_t>(tokens[a] * n_.H + h);
        result_rows[h * A + a] = static_cast<int32_t>(a * n_.H + h);
      }
    }
    if (team.index == 0) begin[0] = 0;
    for (int64_t a = mine.begin; a < mine.end; ++a) {
      for (int64_t h = 0; h < n_.H; ++h) {
        ops::turn(a_.rope, inv_freq_, call_.in[1].as<const int32_t>()[tokens[a]],
                  call_.in[0].row_as<const float>(tokens[a]) + h * query() + n_.Dn,
                  queries + (a * n_.H + h) * at_.width + n_.R);
      }
    }
    if (!a_.transposed) absorb_rows(A, queries, team);
    team.barrier();
    if (a_.transposed) {
      expert_linear({.x = call_.in[0].as<const float>(),
                     .ldx = query(),
                     .row = rows,
                     .begin = begin,
                     .weights = std::array{ExpertWeight{call_.in[2]}},
                     .y = queries,
                     .ldy = n_.H * at_.width,
                     .y_step = at_.width},
                    at_.desc(n_, n_.Dn, k_b_, threads_), best_linear_isa(isa_), base_ + at_.product,
                    team);
      team.barrier();
    }
    auto* results = at<float>(at_.results);
    attention({.q = queries,
               .out = results,
               .page_table = call_.in[7].as<const int32_t>(),
               .q_start = at<int32_t>(at_.start),
               .kv_len = call_.in[6].as<const int32_t>(),
               .cache = {.k = call_.in[4].data,
                         .v = call_.in[4].data,
                         .dtype = call_.in[4].dtype,
                         .page_size = call_.in[4].shape[1],
                         .kv_heads = 1,
                         .head_dim = at_.width},
               .sequences = call_.extents().sequence,
               .max_pages = call_.in[7].cols(),
               .q_heads = n_.H,
               .group = n_.H,
               .q_stride = n_.H * at_.width,
               .out_stride = n_.H * at_.width,
               .scale = a_.scale,
               .scratch = base_ + at_.attention},
              team, isa_);
    team.barrier();
    // Tokens of other sequences may lie between: results then go to their rows from the queries'.
    const bool all = A == call_.rows();
    expert_linear({.x = results,
                   .ldx = at_.width,
                   .row = result_rows,
                   .begin = begin,
                   .weights = std::array{ExpertWeight{call_.in[3]}},
                   .y = all ? call_.out[0].as<float>() : queries,
                   .ldy = n_.H * n_.Dv,
                   .y_step = n_.Dv},
                  at_.desc(n_, n_.R, v_b_, threads_), best_linear_isa(isa_), base_ + at_.product,
                  team);
    if (all) return;
    team.barrier();
    for (int64_t a = mine.begin; a < mine.end; ++a) {
      std::copy_n(queries + a * n_.H * n_.Dv, n_.H * n_.Dv, call_.out[0].row_as<float>(tokens[a]));
    }
  }

  // q_n k_h with k_h as [Dn, R]: each row of k_h is unpacked once for all tokens.
  void absorb_rows(int64_t A, float* queries, const Team& team) const {
    const auto* tokens = at<int32_t>(at_.tokens);
    auto* row = at<float>(at_.product) + team.index * n_.R;
    const Range heads = team.share(n_.H);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      const TensorView k_b = matrix(call_.in[2], h);
      for (int64_t d = 0; d < n_.Dn; ++d) {
        dequantize_row(k_b.dtype, k_b.row(d), row, n_.R);
        for (int64_t a = 0; a < A; ++a) {
          const float q = call_.in[0].row_as<const float>(tokens[a])[h * query() + d];
          add_scaled(row, q, queries + (a * n_.H + h) * at_.width, n_.R, d == 0, isa_);
        }
      }
    }
  }

  const OpCall& call_;
  const ops::LatentAttentionAttrs& a_;
  const ops::LatentSizes n_;
  const DType k_b_, v_b_;
  const Scratch at_;
  std::byte* base_;
  int threads_;
  Isa isa_;
  std::vector<double> inv_freq_;
  std::optional<LatentPlain> plain_;
};

}  // namespace

void add_latent_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kLatentAppend.kind, {.info =
                                          [](const Op&, TypeList, TypeList, int) {
                                            return KernelInfo{"latent_append", 0};
                                          },
                                      .bind = bind_append});
  table.add(ops::kLatentAttention.kind,
            {.info =
                 [cap](const Op& op, TypeList in, TypeList, int threads) {
                   const auto& a = op.attrs.as<ops::LatentAttentionAttrs>();
                   const ops::LatentSizes n(a, in);
                   return KernelInfo{fmt::format("latent_attention.{}", name(cap)),
                                     Scratch(n, a, in, threads).total};
                 },
             .bind =
                 [cap](const LaunchArgs& args) {
                   auto bound = std::make_shared<BoundLatent>(args, cap);
                   return [bound](const Team& team) { (*bound)(team); };
                 }});
}

}  // namespace braid::cpu
