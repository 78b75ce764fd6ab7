#include "braid/kernels/cpu/linear/expert_linear.h"

#include "braid/base/error.h"
#include "braid/kernels/cpu/linear/packs.h"

namespace braid::cpu {
namespace {

using linear_detail::activation_of;
using linear_detail::Codes;
using linear_detail::kCodeColumns;
using linear_detail::kernels;
using linear_detail::Kernels;
using linear_detail::Kind;
using linear_detail::kind_of;
using linear_detail::kRealColumns;
using linear_detail::kSharedPackElems;
using linear_detail::packed_bytes_per_row;
using linear_detail::Packs;
using linear_detail::RunArgs;
using linear_detail::WeightArgs;
using linear_detail::whole_chunk;

constexpr size_t kMaxWeights = 2;

// Places in the scratch. An expert's packed rows begin at its first row, on any path: digits are
// never smaller than words.
struct Layout {
  std::array<int64_t, kMaxWeights> row_bytes{};  // bytes per packed row, for each weight
  std::array<size_t, kMaxWeights> pack{};        // index of a weight's pack
  size_t packs = 0;
  Kind kind = Kind::minimum;
  int64_t k_block = 0;
  int64_t own_rows = 0;    // up to so many rows every thread packs for itself
  int64_t pack_bytes = 0;  // a thread's own rows, all packs
  int64_t panel_bytes = 0;
  int64_t shared_bytes = 0;

  explicit Layout(const ExpertLinearDesc& d) {
    Packs known;
    for (size_t i = 0; i < d.weights.size(); ++i) {
      pack[i] = known.add(d.weights[i]);
      if (kind_of(d.weights[i]) == Kind::real) kind = Kind::real;
    }
    packs = known.count;
    int64_t all = 0;
    for (size_t p = 0; p < packs; ++p) {
      row_bytes[p] = packed_bytes_per_row(kind_of(known.dtypes[p]), Codes::digits, d.K);
      all += row_bytes[p];
    }
    own_rows = d.threads == 1 ? d.rows : std::min(d.rows, kSharedPackElems / d.K);
    pack_bytes = round_up(own_rows * all, 64);
    shared_bytes = d.rows > own_rows ? round_up(d.rows * all, 64) : 0;
    k_block = std::min(d.K, kind == Kind::real ? kRealColumns : kCodeColumns);
    panel_bytes =
        linear_detail::panel_scratch_bytes(whole_chunk(d.rows_of_one), k_block, kind, d.gate);
  }
  int64_t total(int threads) const { return shared_bytes + threads * (pack_bytes + panel_bytes); }
};

// An expert's rows, and the division of its work.
struct Share {
  RunArgs args;
  bool stream = false;
  int64_t items = 0;
  int64_t cost = 0;  // per item
};

class Job {
 public:
  Job(const ExpertLinearParams& params, const ExpertLinearDesc& desc, LinearIsa isa,
      std::byte* scratch, const Team& team)
      : p_(params),
        d_(desc),
        k_(kernels(isa)),
        layout_(desc),
        team_(team),
        E_(params.weights[0].w.shape[0]),
        N_(params.weights[0].w.shape[1]),
        R_(params.begin[E_]) {
    std::byte* own =
        scratch + layout_.shared_bytes + team.index * (layout_.pack_bytes + layout_.panel_bytes);
    shared_ = R_ > layout_.own_rows;
    packed_ = shared_ ? scratch : own;
    panels_ = own + layout_.pack_bytes;
  }

  void run() {
    pack();
    if (shared_) team_.barrier();
    int64_t total = 0;
    for_experts([&](int64_t e) {
      const Share share = share_of(e);
      total += share.items * share.cost;
    });
    const Range mine = team_.share(total);
    int64_t at = 0;
    for_experts([&](int64_t e) {
      const Share share = share_of(e);
      const auto item = [&](int64_t cost) {
        return std::clamp<int64_t>(ceil_div(cost - at, share.cost), 0, share.items);
      };
      const int64_t begin = mine.begin <= at ? 0 : item(mine.begin);
      const int64_t end = mine.end <= at ? 0 : item(mine.end);
      at += share.items * share.cost;
      if (begin >= end) return;
      std::array<WeightArgs, kMaxWeights> weights;
      RunArgs args = share.args;
      args.weights = weights.data();
      fill(e, weights);
      (share.stream ? k_.run_stream : k_.run_panels)(args, begin, end);
    });
  }

 private:
  template <class F>
  void for_experts(F&& f) const {
    for (int64_t e = 0; e < E_; ++e) {
      if (p_.begin[e] < p_.begin[e + 1]) f(e);
    }
  }
  int64_t rows(int64_t e) const { return p_.begin[e + 1] - p_.begin[e]; }
  int64_t first(int64_t e) const { return p_.first != nullptr ? p_.first[e] : p_.begin[e]; }
  bool streams(int64_t e) const { return rows(e) <= kMaxStreamRows; }

  std::byte* packed(size_t pack, int64_t e) const {
    std::byte* at = packed_;
    for (size_t i = 0; i < pack; ++i) at += R_ * layout_.row_bytes[i];
    return at + p_.begin[e] * layout_.row_bytes[pack];
  }

  // Packs tiles of rows, expert by expert: all tiles, or this thread's share.
  void pack() const {
    for (size_t i = 0; i < layout_.packs; ++i) {
      const DType dtype = dtype_of(i);
      const auto tile_of = [&](int64_t e) {
        return streams(e) ? rows(e) : static_cast<int64_t>(k_.tile(dtype));
      };
      int64_t tiles = 0;
      for_experts([&](int64_t e) { tiles += ceil_div(rows(e), tile_of(e)); });
      Range mine = shared_ ? team_.share(tiles) : Range{0, tiles};
      for_experts([&](int64_t e) {
        const int64_t count = ceil_div(rows(e), tile_of(e));
        const int64_t begin = std::clamp<int64_t>(mine.begin, 0, count),
                      end = std::clamp<int64_t>(mine.end, 0, count);
        mine = {mine.begin - count, mine.end - count};
        if (begin >= end) return;
        k_.pack({.x = p_.x + (p_.row ? 0 : first(e) * p_.ldx),
                 .ldx = p_.ldx,
                 .M = rows(e),
                 .K = d_.K,
                 .rows = p_.row ? p_.row + first(e) : nullptr,
                 .tile = tile_of(e),
                 .dtype = dtype,
                 .codes = streams(e) ? Codes::digits : Codes::words,
                 .packed = packed(i, e)},
                begin, end);
      });
    }
  }

  DType dtype_of(size_t pack) const {
    for (size_t i = 0; i < p_.weights.size(); ++i) {
      if (layout_.pack[i] == pack) return p_.weights[i].w.dtype;
    }
    return DType::f32;
  }

  void fill(int64_t e, std::array<WeightArgs, kMaxWeights>& weights) const {
    for (size_t i = 0; i < p_.weights.size(); ++i) {
      const ExpertWeight& from = p_.weights[i];
      const TensorView w = matrix(from.w, e);
      weights[i] = {.data = w.data,
                    .stride = w.row_bytes,
                    .N = N_,
                    .row_bytes = bytes_of(w.dtype, d_.K),
                    .dtype = w.dtype,
                    .bias = from.bias ? from.bias + e * N_ : nullptr,
                    .y = p_.y + (p_.y_step != 0 ? e * p_.y_step : first(e) * p_.ldy),
                    .ldy = p_.ldy,
                    .packed = packed(layout_.pack[i], e)};
    }
  }

  Share share_of(int64_t e) const {
    std::array<WeightArgs, kMaxWeights> weights;
    fill(e, weights);
    Share share{.args = {.weights = weights.data(),
                         .num_weights = static_cast<int>(p_.weights.size()),
                         .gate = activation_of(p_.gate),
                         .residual = nullptr,
                         .ld_residual = 0,
                         .M = rows(e),
                         .K = d_.K,
                         .chunk = whole_chunk(rows(e)),
                         .k_block = layout_.k_block,
                         .scratch = panels_},
                .stream = streams(e)};
    // A row of weights costs as much to unpack as to meet some rows of x.
    constexpr int64_t kUnpack = 6;
    if (share.stream) {
      share.items = k_.stream_items(share.args);
      share.cost = kUnpack + rows(e);
    } else {
      share.items = ceil_div(N_, k_.panel_rows) * ceil_div(rows(e), share.args.chunk);
      share.cost = 2 * (kUnpack + std::min(rows(e), share.args.chunk));
    }
    return share;
  }

  const ExpertLinearParams& p_;
  const ExpertLinearDesc& d_;
  const Kernels& k_;
  const Layout layout_;
  const Team& team_;
  const int64_t E_, N_, R_;
  bool shared_ = false;
  std::byte* packed_ = nullptr;
  std::byte* panels_ = nullptr;
};

void validate(const ExpertLinearParams& p, const ExpertLinearDesc& d) {
  const size_t count = p.weights.size();
  if (count != (p.gate == Gate::none ? 1 : 2) || count != d.weights.size()) {
    fail(ErrorCode::kInvalidArgument, "expert_linear: {} weights {} a gate", count,
         p.gate == Gate::none ? "without" : "with");
  }
  for (const ExpertWeight& weight : p.weights) {
    const TensorView& w = weight.w;
    if (w.shape.rank() != 3 || w.shape[2] != d.K || w.shape[1] != p.weights[0].w.shape[1] ||
        w.dtype == DType::i32 || d.K % info(w.dtype).block_elems != 0) {
      fail(ErrorCode::kInvalidArgument, "expert_linear: weight {} {}, x has K {}", name(w.dtype),
           to_string(w.shape), d.K);
    }
  }
  const int64_t E = p.weights[0].w.shape[0];
  BRAID_CHECK(p.begin[0] == 0 && p.begin[E] <= d.rows, "{} rows, room for {}", p.begin[E], d.rows);
  for (int64_t e = 0; e < E; ++e) {
    const int64_t rows = p.begin[e + 1] - p.begin[e];
    BRAID_CHECK(0 <= rows && rows <= d.rows_of_one, "expert {} has {} rows, room for {}", e, rows,
                d.rows_of_one);
  }
}

}  // namespace

int64_t expert_linear_scratch_bytes(const ExpertLinearDesc& desc) {
  return Layout(desc).total(desc.threads);
}

void expert_linear(const ExpertLinearParams& params, const ExpertLinearDesc& desc, LinearIsa isa,
                   std::byte* scratch, const Team& team) {
  validate(params, desc);
  Job(params, desc, isa, scratch, team).run();
}

}  // namespace braid::cpu
