// Latent attention: the reference against keys and values of every head in f64, the kernels against
// the reference.
#include "braid/ops/latent_attention.h"

#include <numeric>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/linear_case.h"
#include "braid/kernels/cpu/register.h"

namespace braid::cpu {
namespace {

using namespace testing;

struct LatentCase {
  int64_t H = 2, Dn = 8, Dr = 4, Dv = 8, R = 12;
  std::vector<int64_t> cached = {0};  // of each sequence, before the step
  std::vector<int64_t> tokens = {1};
  bool transposed = false;
  ops::RopePairing pairing = ops::RopePairing::interleaved;
  DType weights = DType::f32;
};

std::ostream& operator<<(std::ostream& out, const LatentCase& c) {
  return out << "H " << c.H << " Dn " << c.Dn << " Dr " << c.Dr << " Dv " << c.Dv << " R " << c.R
             << " sequences " << c.tokens.size() << " transposed " << c.transposed << " "
             << name(c.weights);
}

constexpr int64_t kPage = 4, kPagesEach = 160;

// Two steps of the same sequences: the first fills the caches, the second is looked at.
class LatentRun {
 public:
  LatentRun(const LatentCase& c, uint32_t seed) : c_(c), random_(seed) {
    rope_ = {.head_dim = c.Dr, .rotary_dim = c.Dr, .pairing = c.pairing, .theta = 100};
    norm_ = random_floats(random_, c.R);
    k_b_ = matrices(c.transposed ? Shape{c.H, c.R, c.Dn} : Shape{c.H, c.Dn, c.R});
    v_b_ = matrices({c.H, c.Dv, c.R});
    for (size_t s = 0; s < c.tokens.size(); ++s) {
      rows_.push_back(random_floats(random_, (c.cached[s] + c.tokens[s]) * (c.R + c.Dr)));
    }
    q_ =
        random_floats(random_, std::reduce(c.tokens.begin(), c.tokens.end()) * c.H * (c.Dn + c.Dr));
  }

  // [T, H * Dv] by kernels of a team, or by references.
  std::vector<float> run(int threads, Isa isa, bool reference) {
    const auto S = std::ssize(c_.tokens);
    std::vector<float> cache(static_cast<size_t>(S * kPagesEach * kPage * (c_.R + c_.Dr)), kNaN);
    std::vector<float> out;
    for (const bool second : {false, true}) {
      const std::vector<int64_t>& counts = second ? c_.tokens : c_.cached;
      const int64_t T = std::reduce(counts.begin(), counts.end());
      if (T == 0) continue;
      Builder b("latent", {.token = T, .sequence = S, .row = 1});
      const auto input = [&](const char* name, DType dtype, const Shape& shape, BatchAxis axis) {
        return b.input(name, {dtype, shape, axis});
      };
      const ops::AttentionMeta meta = {
          input("slots", DType::i32, {T}, BatchAxis::token),
          input("q_start", DType::i32, {S + 1}, BatchAxis::sequence),
          input("kv_len", DType::i32, {S}, BatchAxis::sequence),
          input("pages", DType::i32, {S, kPagesEach}, BatchAxis::sequence)};
      const ValueId q = input("q", DType::f32, {T, c_.H * (c_.Dn + c_.Dr)}, BatchAxis::token),
                    kv = input("kv", DType::f32, {T, c_.R + c_.Dr}, BatchAxis::token),
                    positions = input("positions", DType::i32, {T}, BatchAxis::token);
      const ValueId state =
          b.state("cache", {DType::f32, {S * kPagesEach, kPage, 1, c_.R + c_.Dr}});
      const ValueId result = ops::latent_attention(
          b, q, kv, positions, state, meta,
          {b.weight("norm", {DType::f32, {c_.R}}), b.weight("k_b", {c_.weights, k_b_.shape}),
           b.weight("v_b", {c_.weights, v_b_.shape})},
          {.rope = rope_, .eps = 1e-6f},
          {.rope = rope_, .scale = scale(), .transposed = c_.transposed});
      const Program program = b.finish({result});
      step(program, counts, second, cache, threads, isa, reference, out);
    }
    return out;
  }

  // Logits of about 1 in every case: errors of sums do not grow with the sizes.
  float scale() const { return 3 / std::sqrt(static_cast<float>(c_.Dn * c_.R)); }

  // By definition: keys and values of every head, in f64.
  std::vector<double> plain() {
    std::vector<double> out;
    const int64_t D = c_.Dn + c_.Dr;
    int64_t row = 0;
    for (size_t s = 0; s < c_.tokens.size(); ++s) {
      const int64_t n = c_.cached[s] + c_.tokens[s];
      for (int64_t t = c_.cached[s]; t < n; ++t, ++row) {
        for (int64_t h = 0; h < c_.H; ++h) {
          const auto at = static_cast<size_t>((row * c_.H + h) * D);
          std::vector<double> q(q_.begin() + static_cast<int64_t>(at),
                                q_.begin() + static_cast<int64_t>(at) + D);
          turned(q, c_.Dn, t);
          std::vector<double> scores, sum(static_cast<size_t>(c_.Dv));
          double top = -INFINITY, total = 0;
          for (int64_t j = 0; j <= t; ++j) {
            const std::vector<double> key = key_of(s, h, j);
            double dot = 0;
            for (size_t i = 0; i < q.size(); ++i) dot += q[i] * key[i];
            scores.push_back(dot * static_cast<double>(scale()));
            top = std::max(top, scores.back());
          }
          for (int64_t j = 0; j <= t; ++j) {
            const double p = std::exp(scores[static_cast<size_t>(j)] - top);
            total += p;
            const std::vector<double> value = through(v_b_, h, latent(s, j), c_.Dv);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += p * value[i];
          }
          for (const double x : sum) out.push_back(x / total);
        }
      }
    }
    return out;
  }

 private:
  struct Matrices {
    Shape shape;
    std::vector<std::byte> bytes;
    std::vector<float> values;
  };
  Matrices matrices(const Shape& shape) {
    Matrices m{shape,
               std::vector<std::byte>(static_cast<size_t>(bytes_of(c_.weights, shape.elems()))),
               std::vector<float>(static_cast<size_t>(shape.elems()))};
    const std::vector<float> drawn = random_floats(random_, shape.elems(), 0.3f);
    quantize_row(c_.weights, drawn.data(), m.bytes.data(), shape.elems());
    dequantize_row(c_.weights, m.bytes.data(), m.values.data(), shape.elems());
    return m;
  }

  const float* kv_row(size_t s, int64_t j) const { return rows_[s].data() + j * (c_.R + c_.Dr); }
  std::vector<double> latent(size_t s, int64_t j) const {
    std::vector<double> c(kv_row(s, j), kv_row(s, j) + c_.R);
    double squares = 0;
    for (const double x : c) squares += x * x;
    for (size_t i = 0; i < c.size(); ++i) {
      c[i] *= norm_[i] / std::sqrt(squares / static_cast<double>(c_.R) + 1e-6);
    }
    return c;
  }
  void turned(std::vector<double>& x, int64_t begin, int64_t position) const {
    const int64_t half = c_.Dr / 2;
    for (int64_t i = 0; i < half; ++i) {
      const bool pairs = c_.pairing == ops::RopePairing::interleaved;
      double& a = x[static_cast<size_t>(begin + (pairs ? 2 * i : i))];
      double& b = x[static_cast<size_t>(begin + (pairs ? 2 * i + 1 : i + half))];
      const double angle =
          static_cast<double>(position) *
          std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(c_.Dr));
      const double u = a, v = b;
      a = u * std::cos(angle) - v * std::sin(angle);
      b = v * std::cos(angle) + u * std::sin(angle);
    }
  }
  // W_h x with n rows.
  std::vector<double> through(const Matrices& w, int64_t h, const std::vector<double>& x, int64_t n,
                              bool transposed = false) const {
    std::vector<double> y(static_cast<size_t>(n));
    const auto cols = std::ssize(x);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t at = transposed ? (h * cols + c) * n + r : (h * n + r) * cols + c;
        y[static_cast<size_t>(r)] +=
            static_cast<double>(w.values[static_cast<size_t>(at)]) * x[static_cast<size_t>(c)];
      }
    }
    return y;
  }
  std::vector<double> key_of(size_t s, int64_t h, int64_t j) const {
    std::vector<double> key = through(k_b_, h, latent(s, j), c_.Dn, c_.transposed);
    key.insert(key.end(), kv_row(s, j) + c_.R, kv_row(s, j) + c_.R + c_.Dr);
    turned(key, c_.Dn, j);
    return key;
  }

  void step(const Program& program, const std::vector<int64_t>& counts, bool second,
            std::vector<float>& cache, int threads, Isa isa, bool reference,
            std::vector<float>& out) {
    std::map<std::string, std::vector<int32_t>> ints;
    std::vector<float> kv,
        q = second ? q_ : random_floats(random_, program.capacity.token * c_.H * (c_.Dn + c_.Dr));
    ints["q_start"] = {0};
    for (size_t s = 0; s < counts.size(); ++s) {
      const int64_t before = second ? c_.cached[s] : 0;
      for (int64_t t = before; t < before + counts[s]; ++t) {
        // Pages of a sequence lie in the reverse order.
        const int64_t page = (static_cast<int64_t>(s) + 1) * kPagesEach - 1 - t / kPage;
        ints["slots"].push_back(static_cast<int32_t>(page * kPage + t % kPage));
        ints["positions"].push_back(static_cast<int32_t>(t));
        kv.insert(kv.end(), kv_row(s, t), kv_row(s, t) + c_.R + c_.Dr);
      }
      ints["q_start"].push_back(ints["q_start"].back() + static_cast<int32_t>(counts[s]));
      ints["kv_len"].push_back(static_cast<int32_t>(before + counts[s]));
      for (int64_t p = 0; p < kPagesEach; ++p) {
        ints["pages"].push_back(
            static_cast<int32_t>((static_cast<int64_t>(s) + 1) * kPagesEach - 1 - p));
      }
    }
    out = poisoned(program.value(program.outputs[0]).type.shape.elems());
    const auto view = [&](ValueId id) {
      const Value& value = program.value(id);
      void* data = ints.contains(value.name) ? static_cast<void*>(ints[value.name].data())
                   : value.name == "q"       ? q.data()
                   : value.name == "kv"      ? kv.data()
                   : value.name == "norm"    ? norm_.data()
                   : value.name == "k_b"     ? static_cast<void*>(k_b_.bytes.data())
                   : value.name == "v_b"     ? static_cast<void*>(v_b_.bytes.data())
                   : value.name == "cache"   ? static_cast<void*>(cache.data())
                                             : out.data();
      return make_view(static_cast<std::byte*>(data), value.type.dtype, value.type.shape);
    };
    BatchPart part{{}, program.capacity};
    for (const Op& op : program.ops) {
      std::vector<TensorView> in, to;
      for (ValueId id : op.inputs) in.push_back(view(id));
      for (ValueId id : op.outputs) to.push_back(view(id));
      const OpCall call{&op, in, to, program.value(op.inputs[0]).type.axis, &part};
      if (reference) {
        op.def->reference(call);
        continue;
      }
      KernelTable table(threads);
      add_cpu_kernels(table, isa);
      const Kernel& kernel = table.at(op.def->kind);
      const int64_t bytes =
          kernel.info(op, program.input_types(op), program.output_types(op), threads)
              .workspace_bytes;
      std::vector<std::byte> memory(static_cast<size_t>(bytes + 128), std::byte{0xff});
      std::byte* workspace = memory.data() + (-reinterpret_cast<uintptr_t>(memory.data()) & 63);
      const BoundKernel bound =
          kernel.bind({.call = call, .workspace = workspace, .threads = threads});
      on_team(threads, bound);
    }
  }

  const LatentCase c_;
  std::mt19937 random_;
  ops::RopeAttrs rope_;
  std::vector<float> norm_, q_;
  Matrices k_b_, v_b_;
  std::vector<std::vector<float>> rows_;  // of each sequence, [tokens, R + Dr]
};

const std::vector<LatentCase> kCases = {
    {},
    {.cached = {7}, .transposed = true},
    {.H = 3, .Dn = 12, .Dr = 6, .Dv = 5, .R = 10, .cached = {0, 5}, .tokens = {9, 1}},
    {.H = 5,
     .Dn = 16,
     .Dr = 8,
     .Dv = 24,
     .R = 32,
     .cached = {3, 0, 20},
     .tokens = {2, 11, 1},
     .transposed = true,
     .pairing = ops::RopePairing::half},
    {.H = 16, .Dn = 128, .Dr = 64, .Dv = 128, .R = 512, .cached = {13}, .tokens = {3}},
    {.H = 2,
     .Dn = 32,
     .Dr = 32,
     .Dv = 32,
     .R = 64,
     .cached = {4, 4},
     .tokens = {1, 6},
     .transposed = true,
     .weights = DType::q8_0},
    {.H = 2,
     .Dn = 7,
     .Dr = 8,
     .Dv = 9,
     .R = 64,
     .cached = {4},
     .tokens = {6},
     .weights = DType::q5_0},
    {.H = 3,
     .Dn = 16,
     .Dr = 8,
     .Dv = 16,
     .R = 24,
     .cached = {4},
     .tokens = {1},
     .weights = DType::bf16},
    // Enough new tokens for keys and values by head, over several pieces of keys.
    {.cached = {560}, .tokens = {60}},
    {.H = 3,
     .Dn = 16,
     .Dr = 8,
     .Dv = 24,
     .R = 32,
     .cached = {3, 0, 300, 200, 9},
     .tokens = {2, 70, 1, 90, 3},
     .transposed = true,
     .pairing = ops::RopePairing::half},
    {.H = 2,
     .Dn = 32,
     .Dr = 32,
     .Dv = 32,
     .R = 64,
     .cached = {4, 30},
     .tokens = {1, 70},
     .weights = DType::q8_0},
};

TEST(LatentAttention, TheAbsorbedFormIsThePlainOne) {
  const uint32_t seed = std::random_device{}();
  for (const LatentCase& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c << ", seed " << seed);
    LatentRun run(c, seed);
    const std::vector<float> got = run.run(1, Isa::baseline, true);
    const std::vector<double> want = run.plain();
    ASSERT_EQ(got.size(), want.size());
    Worst worst;
    for (size_t i = 0; i < got.size(); ++i) {
      worst.see(static_cast<int64_t>(i), got[i], want[i], 1e-4 * std::max(1.0, std::abs(want[i])));
    }
    expect_close(worst);
  }
}

TEST(LatentAttention, TheFormFollowsTheOperations) {
  const ops::LatentAttentionAttrs attrs{.rope = {.head_dim = 64}};
  // DeepSeek-V2-Lite.
  const std::array<ValueType, 4> in = {ValueType{DType::f32, {1, 16 * 192}},
                                       {DType::i32, {1}},
                                       {DType::f32, {16, 128, 512}},
                                       {DType::f32, {16, 128, 512}}};
  const ops::LatentSizes sizes(attrs, std::span<const ValueType>(in));
  const int64_t most = ops::most_absorbed_tokens(sizes);
  EXPECT_EQ(most, 170);
  EXPECT_FALSE(ops::takes_plain_form(sizes, 1, 1));
  EXPECT_FALSE(ops::takes_plain_form(sizes, 1, 4096));
  EXPECT_FALSE(ops::takes_plain_form(sizes, most - 1, 1 << 20));
  EXPECT_TRUE(ops::takes_plain_form(sizes, most + 1, 1 << 20));
  EXPECT_TRUE(ops::takes_plain_form(sizes, 64, 64));
  EXPECT_FALSE(ops::takes_plain_form(sizes, 64, 512));
}

TEST(LatentAttention, KernelsGiveWhatTheReferenceGives) {
  const uint32_t seed = std::random_device{}();
  for (const LatentCase& c : kCases) {
    if ((c.R + c.Dr) % 8 != 0) continue;  // the configuration refuses these
    SCOPED_TRACE(::testing::Message() << c << ", seed " << seed);
    LatentRun run(c, seed);
    const std::vector<float> want = run.run(1, Isa::baseline, true);
    for (Isa isa : usable_isas()) {
      for (int threads : {1, 2, 3}) {
        SCOPED_TRACE(::testing::Message() << name(isa) << ", " << threads << " threads");
        const std::vector<float> got = run.run(threads, isa, false);
        Worst worst;
        for (size_t i = 0; i < got.size(); ++i) {
          worst.see(static_cast<int64_t>(i), got[i], want[i],
                    (is_quantized(c.weights) ? 2e-3 : 1e-4) * std::max(1.0f, std::abs(want[i])));
        }
        expect_close(worst);
      }
    }
  }
}

}  // namespace
}  // namespace braid::cpu
