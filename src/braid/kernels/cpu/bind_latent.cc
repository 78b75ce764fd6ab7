// Binds latent_append and latent_attention. The absorbed form is a product per head, attention of
// all heads over a single KV head of latents, and again a product per head.
#include "braid/kernels/cpu/attention/attention.h"
#include "braid/kernels/cpu/bind.h"
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
  held->rows.assign(static_cast<size_t>(args.threads),
                    std::vector<float>(static_cast<size_t>(call.in[0].cols())));
  return [&call, &a, held](const Team& team) {
    const Range mine = team.share(call.rows());
    std::vector<float>& row = held->rows[static_cast<size_t>(team.index)];
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

// The sizes of a call and the offsets of its scratch.
struct Latent {
  int64_t T, H, Dn, Dr, Dv, R;
  bool transposed;
  int64_t width() const { return R + Dr; }  // of a latent, and of a latent's query
  int64_t query() const { return Dn + Dr; }

  template <class Operand>
  Latent(const ops::LatentAttentionAttrs& a, std::span<const Operand> in)
      : T(in[0].shape[0]),
        H(in[2].shape[0]),
        Dn(in[2].shape[a.transposed ? 2 : 1]),
        Dr(a.rope.head_dim),
        Dv(in[3].shape[1]),
        R(in[2].shape[a.transposed ? 1 : 2]),
        transposed(a.transposed) {}

  ExpertLinearDesc absorb(const DType& dtype, int threads) const {
    return {.rows = T * H, .rows_of_one = T, .K = Dn, .weights = {&dtype, 1}, .threads = threads};
  }
  ExpertLinearDesc expand(const DType& dtype, int threads) const {
    return {.rows = T * H, .rows_of_one = T, .K = R, .weights = {&dtype, 1}, .threads = threads};
  }
};

struct Scratch {
  int64_t queries = 0, results = 0, rows = 0, begin = 0, product = 0, attention = 0, total = 0;

  Scratch(const Latent& n, DType k_b, DType v_b, int threads) {
    const auto take = [&](int64_t bytes) {
      const int64_t at = total;
      total += round_up(bytes, 64);
      return at;
    };
    queries = take(n.T * n.H * n.width() * 4);
    results = take(n.T * n.H * n.width() * 4);
    rows = take(n.T * n.H * 4);
    begin = take((n.H + 1) * 4);
    product = take(std::max(
        n.transposed ? expert_linear_scratch_bytes(n.absorb(k_b, threads)) : threads * n.R * 4,
        expert_linear_scratch_bytes(n.expand(v_b, threads))));
    attention = take(attention_scratch_bytes(n.H, n.H, n.width(), threads));
  }
};

class BoundLatent {
 public:
  BoundLatent(const LaunchArgs& args, Isa isa)
      : call_(args.call),
        a_(call_.attrs<ops::LatentAttentionAttrs>()),
        n_(a_, call_.in),
        k_b_(call_.in[2].dtype),
        v_b_(call_.in[3].dtype),
        at_(n_, k_b_, v_b_, args.threads),
        base_(args.workspace),
        threads_(args.threads),
        isa_(isa),
        inv_freq_(ops::rope_frequencies(a_.rope, nullptr)) {
    BRAID_CHECK(n_.width() <= kMaxHeadDim, "latents of {}", n_.width());
  }

  void operator()(const Team& team) const {
    const int64_t T = call_.rows();
    auto* queries = at<float>(at_.queries);
    // Head h has rows (t, h) of queries and of results.
    auto *rows = at<int32_t>(at_.rows), *begin = at<int32_t>(at_.begin);
    const Range heads = team.share(n_.H), tokens = team.share(T);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      begin[h + 1] = static_cast<int32_t>((h + 1) * T);
      for (int64_t t = 0; t < T; ++t) rows[h * T + t] = static_cast<int32_t>(t * n_.H + h);
    }
    if (team.index == 0) begin[0] = 0;
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (int64_t h = 0; h < n_.H; ++h) {
        ops::turn(a_.rope, inv_freq_, call_.in[1].as<const int32_t>()[t],
                  call_.in[0].row_as<const float>(t) + h * n_.query() + n_.Dn,
                  queries + (t * n_.H + h) * n_.width() + n_.R);
      }
    }
    if (!n_.transposed) absorb_rows(T, queries, team);
    team.barrier();
    if (n_.transposed) {
      expert_linear({.x = call_.in[0].as<const float>(),
                     .ldx = n_.query(),
                     .row = rows,
                     .begin = begin,
                     .weights = std::array{ExpertWeight{call_.in[2]}},
                     .y = queries,
                     .ldy = n_.H * n_.width(),
                     .y_step = n_.width()},
                    n_.absorb(k_b_, threads_), best_linear_isa(isa_), base_ + at_.product, team);
      team.barrier();
    }
    auto* results = at<float>(at_.results);
    attention({.q = queries,
               .out = results,
               .page_table = call_.in[7].as<const int32_t>(),
               .q_start = call_.in[5].as<const int32_t>(),
               .kv_len = call_.in[6].as<const int32_t>(),
               .cache = {.k = call_.in[4].data,
                         .v = call_.in[4].data,
                         .dtype = call_.in[4].dtype,
                         .page_size = call_.in[4].shape[1],
                         .kv_heads = 1,
                         .head_dim = n_.width()},
               .first_token = call_.part->begin.token,
               .sequences = call_.extents().sequence,
               .max_pages = call_.in[7].cols(),
               .q_heads = n_.H,
               .group = n_.H,
               .q_stride = n_.H * n_.width(),
               .out_stride = n_.H * n_.width(),
               .scale = a_.scale,
               .scratch = base_ + at_.attention},
              team, isa_);
    team.barrier();
    expert_linear({.x = results,
                   .ldx = n_.width(),
                   .row = rows,
                   .begin = begin,
                   .weights = std::array{ExpertWeight{call_.in[3]}},
                   .y = call_.out[0].as<float>(),
                   .ldy = n_.H * n_.Dv,
                   .y_step = n_.Dv},
                  n_.expand(v_b_, threads_), best_linear_isa(isa_), base_ + at_.product, team);
  }

 private:
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  // q_n k_h with k_h as [Dn, R]: each row of k_h is unpacked once for all tokens.
  void absorb_rows(int64_t T, float* queries, const Team& team) const {
    auto* row = at<float>(at_.product) + team.index * n_.R;
    const Range heads = team.share(n_.H);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      const TensorView k_b = matrix(call_.in[2], h);
      for (int64_t d = 0; d < n_.Dn; ++d) {
        dequantize_row(k_b.dtype, k_b.row(d), row, n_.R);
        for (int64_t t = 0; t < T; ++t) {
          const float q = call_.in[0].row_as<const float>(t)[h * n_.query() + d];
          add_scaled(row, q, queries + (t * n_.H + h) * n_.width(), n_.R, d == 0, isa_);
        }
      }
    }
  }

  const OpCall& call_;
  const ops::LatentAttentionAttrs& a_;
  const Latent n_;
  const DType k_b_, v_b_;
  const Scratch at_;
  std::byte* base_;
  int threads_;
  Isa isa_;
  std::vector<double> inv_freq_;
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
                   const Latent n(op.attrs.as<ops::LatentAttentionAttrs>(), in);
                   return KernelInfo{fmt::format("latent_attention.{}", name(cap)),
                                     Scratch(n, in[2].dtype, in[3].dtype, threads).total};
                 },
             .bind =
                 [cap](const LaunchArgs& args) {
                   auto bound = std::make_shared<BoundLatent>(args, cap);
                   return [bound](const Team& team) { (*bound)(team); };
                 }});
}

}  // namespace braid::cpu
