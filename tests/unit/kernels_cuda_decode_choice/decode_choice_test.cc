// Which form a decode step takes, for how much and why: without a GPU.
#include "braid/kernels/cuda/decode_choice/decode_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

using testing::HasSubstr;

// Of an H100 as it was measured.
FusedDevice h100() {
  return {.clusters = {0, 132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7}};
}
DecodeRates rates() {
  return decode_rates("NVIDIA H100 80GB HBM3", 3.129e12);
}

DecodeStep step_of(int64_t C, int64_t F, int64_t kv_heads, int group, int head_dim, int layers,
                   int64_t vocab, int64_t context) {
  return {.block = {.width = C,
                    .kv_heads = kv_heads,
                    .group = group,
                    .head_dim = head_dim,
                    .page_size = 64,
                    .outputs = C},
          .layers = layers,
          .ffn_bytes = 6 * C * F,
          .down_bytes = 2 * C * F,
          .head_bytes = 2 * C * vocab,
          .context = context};
}
DecodeStep llama_7b(int64_t context) {
  return step_of(4096, 11008, 32, 1, 128, 32, 32000, context);
}
DecodeStep llama_1b(int64_t context) {
  return step_of(2048, 8192, 8, 4, 64, 16, 128256, context);
}
DecodeStep qwen_06b(int64_t context) {
  return step_of(1024, 3072, 8, 2, 128, 28, 151936, context);
}

double price_of(const DecodeStep& step, const DecodeForm& form) {
  for (const DecodePrice& p : decode_prices(step, h100(), rates())) {
    if (p.form == form && p.why_not.empty()) return p.seconds();
  }
  return NAN;
}

std::string error_of(const std::function<void()>& f, ErrorCode code) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(DecodeForm, Reads) {
  EXPECT_EQ(parse_decode("auto"), DecodeForm{});
  EXPECT_EQ(parse_decode("relay").kind, DecodeKind::relay);
  EXPECT_EQ(parse_decode("apart").kind, DecodeKind::apart);
  EXPECT_EQ(parse_decode("fused"), DecodeForm{.kind = DecodeKind::fused});
  const DecodeForm all =
      parse_decode("fused:cluster=6,split=token,scope=projected,exchange=memory");
  EXPECT_EQ(all, (DecodeForm{.kind = DecodeKind::fused,
                             .cluster = 6,
                             .scope = FusedScope::projected,
                             .path = ExchangePath::memory}));
  for (const char* text : {"auto", "apart", "relay", "fused:split=token,scope=qkv,exchange=chip",
                           "fused:cluster=16,split=token,scope=projected,exchange=memory",
                           "fused:cluster=2,split=head,scope=qkv,exchange=chip"}) {
    EXPECT_EQ(to_string(parse_decode(text)), text);
  }
}

TEST(DecodeForm, NamesWhatIsWrong) {
  const auto error = [](const char* text) {
    return error_of([&] { parse_decode(text); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error("fast"), HasSubstr("--decode 'fast': wanted auto, apart, relay, fused"));
  EXPECT_THAT(error(""), HasSubstr("--decode ''"));
  EXPECT_THAT(error("fusedx"), HasSubstr("--decode 'fusedx'"));
  EXPECT_EQ(error("fused:cluster=17"), "--decode: cluster is '17', wanted 1 to 16");
  EXPECT_EQ(error("fused:cluster=0"), "--decode: cluster is '0', wanted 1 to 16");
  EXPECT_EQ(error("fused:cluster=4x"), "--decode: cluster is '4x', wanted 1 to 16");
  EXPECT_EQ(error("fused:cluster="), "--decode: cluster is '', wanted 1 to 16");
  EXPECT_EQ(error("fused:cluster"), "--decode: cluster is '', wanted 1 to 16");
  EXPECT_EQ(error("fused:split=keys"), "--decode: split is 'keys', wanted token or head");
  EXPECT_EQ(error("fused:scope=all"), "--decode: scope is 'all', wanted qkv or projected");
  EXPECT_EQ(error("fused:exchange=l2"), "--decode: exchange is 'l2', wanted chip or memory");
  EXPECT_THAT(error("fused:cluster=4,depth=2"), HasSubstr("fused has no 'depth'"));
  EXPECT_THAT(error("fused:"), HasSubstr("fused has no ''"));
}

// What whole models took as relays on an H100, in milliseconds.
TEST(DecodePrice, OfRelaysIsWithinATwentiethOfWhatWasMeasured) {
  const DecodeForm relay{.kind = DecodeKind::relay};
  const auto near = [&](const DecodeStep& step, double ms) {
    EXPECT_NEAR(1e3 * price_of(step, relay), ms, .05 * ms);
  };
  near(llama_7b(1024), 4.558);
  near(llama_7b(4096), 5.069);
  near(llama_1b(1024), .935);
  near(llama_1b(4096), .956);
  near(qwen_06b(1024), .809);
  near(qwen_06b(4096), .879);
}

// Blocks alone, in microseconds a layer: without feed-forward, head and other launches.
TEST(DecodePrice, OfBlocksIsNearWhatWasMeasured) {
  const auto near = [&](DecodeStep step, int cluster, FusedScope scope, double us,
                        FusedSplit split = FusedSplit::token) {
    step.layers = 1;
    step.ffn_bytes = step.down_bytes = step.head_bytes = 0;
    step.launches = scope == FusedScope::qkv ? 3 : 4;
    const double out = scope == FusedScope::qkv
                           ? 2. * step.block.kv_heads * step.block.group * step.block.head_dim *
                                 step.block.outputs / rates().stream
                           : 0;
    const DecodeForm form{
        .kind = DecodeKind::fused, .cluster = cluster, .split = split, .scope = scope};
    EXPECT_NEAR(1e6 * (price_of(step, form) - out), us, .15 * us) << to_string(form);
  };
  near(llama_7b(1024), 3, FusedScope::qkv, 44.1);
  near(llama_7b(16384), 3, FusedScope::qkv, 123.7);
  near(llama_7b(1024), 1, FusedScope::qkv, 78.3);
  near(llama_7b(1024), 3, FusedScope::projected, 56.7);
  near(llama_7b(4096), 3, FusedScope::projected, 72.1);
  near(llama_7b(16384), 2, FusedScope::projected, 144.6);
  near(llama_1b(1024), 8, FusedScope::qkv, 14.4);
  near(llama_1b(16384), 8, FusedScope::qkv, 31.1);
  near(llama_1b(1024), 6, FusedScope::projected, 19.5);
  near(qwen_06b(1024), 8, FusedScope::qkv, 13.3);
  near(qwen_06b(4096), 8, FusedScope::qkv, 18.0);
  // Clusters in waves.
  near(llama_7b(1024), 4, FusedScope::qkv, 64.0);
  near(llama_7b(1024), 8, FusedScope::qkv, 63.9);
  near(llama_7b(4096), 6, FusedScope::qkv, 66.2);
  near(llama_7b(16384), 10, FusedScope::qkv, 172.1);
  near(llama_7b(16384), 16, FusedScope::qkv, 153.9);
  // Divided heads.
  near(llama_7b(1024), 2, FusedScope::qkv, 47.5, FusedSplit::head);
  near(llama_7b(16384), 2, FusedScope::qkv, 144.0, FusedSplit::head);
  near(llama_7b(16384), 4, FusedScope::qkv, 193.9, FusedSplit::head);
  near(llama_7b(16384), 2, FusedScope::projected, 154.3, FusedSplit::head);
  near(qwen_06b(16384), 4, FusedScope::qkv, 129.8, FusedSplit::head);
  near(llama_1b(16384), 2, FusedScope::qkv, 134.1, FusedSplit::head);
}

// The table of docs/log/cluster-fusion.md: whole models of one sequence, in milliseconds.
TEST(DecodePrice, OfEveryFormIsNearWhatWasMeasured) {
  const struct {
    int64_t context;
    double apart, relay, fused, projected, memory, by_heads;
  } rows[] = {{1024, 5.285, 4.571, 5.164, 5.085, 5.316, 5.395},
              {2048, 5.480, 4.744, 5.290, 5.254, 5.498, 5.595},
              {4096, 5.855, 5.103, 5.641, 5.601, 5.864, 6.020},
              {8192, 6.565, 5.808, 6.332, 6.295, 6.575, 6.841},
              {16384, 7.972, 7.217, 7.721, 7.666, 8.007, 8.521}};
  for (const auto& row : rows) {
    const auto near = [&](const char* form, double ms, double off) {
      EXPECT_NEAR(1e3 * price_of(llama_7b(row.context), parse_decode(form)), ms, off * ms)
          << form << " at " << row.context;
    };
    near("apart", row.apart, .05);
    near("relay", row.relay, .05);
    near("fused:cluster=3", row.fused, .05);
    near("fused:cluster=3,scope=projected", row.projected, .05);
    near("fused:cluster=2,exchange=memory", row.memory, .1);
    near("fused:cluster=2,split=head", row.by_heads, .1);
  }
}

// Steps of several sequences, as describe_step describes these.
DecodeStep together(DecodeStep step, int64_t tokens) {
  step.block.tokens = tokens;
  step.block.normed = tokens <= 4;
  step.launches = 8;
  step.norms_apart = true;
  step.no_relay = "several tokens";
  return step;
}

// Whole models on an H100, in milliseconds.
TEST(DecodePrice, OfSeveralTokensIsNearWhatWasMeasured) {
  const DecodeForm apart{.kind = DecodeKind::apart};
  const auto near = [](const DecodeStep& step, const DecodeForm& form, double ms, double off) {
    EXPECT_NEAR(1e3 * price_of(step, form), ms, off * ms) << step.block.tokens;
  };
  near(together(llama_7b(1024), 3), apart, 5.514, .05);
  near(together(llama_7b(1024), 4), apart, 5.606, .05);
  near(together(llama_7b(4096), 4), apart, 7.633, .05);
  near(together(llama_7b(1024), 8), apart, 6.309, .05);
  near(together(llama_7b(4096), 8), apart, 10.398, .05);
  near(together(llama_7b(1024), 16), apart, 7.763, .05);
  near(together(llama_7b(4096), 16), apart, 16.158, .05);
  near(together(llama_1b(1024), 4), apart, 1.162, .05);
  near(together(llama_1b(4096), 4), apart, 1.320, .05);
  const auto fused = [&](const DecodeStep& step, double ms) {
    near(step, choose_decode(parse_decode("fused"), step, h100(), rates()), ms, .15);
  };
  fused(together(llama_7b(1024), 3), 5.679);
  fused(together(llama_7b(1024), 4), 5.880);
  fused(together(llama_7b(4096), 4), 7.972);
  fused(together(llama_7b(1024), 8), 6.552);
  fused(together(llama_7b(1024), 16), 8.745);
  fused(together(llama_7b(4096), 16), 17.566);
  fused(together(llama_1b(1024), 4), 1.310);
  fused(together(llama_1b(4096), 4), 1.491);
}

TEST(DecodeChoice, TakesTheRelayWhereNothingGains) {
  for (const int64_t context : {1, 1024, 16384}) {
    for (const DecodeStep& step : {llama_7b(context), llama_1b(context), qwen_06b(context)}) {
      EXPECT_EQ(choose_decode({}, step, h100(), rates()).kind, DecodeKind::relay);
    }
  }
}

// `auto` is within a twentieth of the cheapest candidate in every bucket of contexts, and forms do
// not depend on a step's context: neither its cluster nor its bits.
TEST(DecodeChoice, IsOneForAllContexts) {
  const std::vector<std::function<DecodeStep(int64_t)>> models = {llama_7b, llama_1b, qwen_06b};
  for (const auto& model : models) {
    for (const int64_t tokens : {1, 2, 3, 4, 8, 16}) {
      const auto step_with = [&](int64_t context) {
        return tokens == 1 ? model(context) : together(model(context), tokens);
      };
      for (const char* text : {"auto", "fused", "fused:scope=projected", "fused:exchange=memory"}) {
        const DecodeForm asked = parse_decode(text);
        const DecodeForm form = choose_decode(asked, step_with(1), h100(), rates());
        for (const int64_t context : {int64_t{1}, int64_t{1000}, int64_t{5000}, int64_t{1} << 20}) {
          EXPECT_EQ(choose_decode(asked, step_with(context), h100(), rates()), form) << text;
        }
        if (asked.kind != DecodeKind::automatic) continue;
        for (const int64_t context : kContextBuckets) {
          const double best = decode_prices(step_with(context), h100(), rates())[0].seconds();
          EXPECT_LE(price_of(step_with(context), form), 1.05 * best)
              << tokens << " tokens, " << context << " keys";
        }
      }
    }
  }
}

// A form that loses in a bucket is not taken, whatever the form gains in the usual bucket.
TEST(DecodeChoice, LosesNowhere) {
  DecodeStep step = llama_7b(1024);
  step.no_relay = "two machines";
  DecodeRates r = rates();
  EXPECT_EQ(choose_decode({}, step, h100(), r).kind, DecodeKind::fused);
  r.cta_keys[0] *= .66;  // reading long contexts takes longer than fewer launches save
  for (const int64_t context : {kContextBuckets[1], kContextBuckets[3]}) {
    step.context = context;
    const DecodeKind best = decode_prices(step, h100(), r)[0].form.kind;
    EXPECT_EQ(best, context == kUsualContext ? DecodeKind::fused : DecodeKind::apart) << context;
  }
  EXPECT_EQ(choose_decode({}, step, h100(), r).kind, DecodeKind::apart);
}

// Where a relay does not take the step, by price.
TEST(DecodeChoice, WithoutARelay) {
  DecodeStep step = llama_7b(1024);
  step.no_relay = "ranks on two machines";
  const DecodeForm form = choose_decode({}, step, h100(), rates());
  EXPECT_EQ(form.kind, DecodeKind::fused);
  step.no_fused = "nor this";
  EXPECT_EQ(choose_decode({}, step, h100(), rates()).kind, DecodeKind::apart);
  EXPECT_EQ(error_of([&] { choose_decode(parse_decode("relay"), step, h100(), rates()); },
                     ErrorCode::kUnsupported),
            "--decode relay: ranks on two machines");
}

// A gain below the threshold changes nothing, one above it does.
TEST(DecodeChoice, WantsAGain) {
  DecodeStep step = llama_7b(1024);
  DecodeRates r = rates();
  const auto kind = [&] { return choose_decode({}, step, h100(), r).kind; };
  EXPECT_EQ(kind(), DecodeKind::relay);
  r.fused_seam = r.fused_cta = r.words_seam = r.relay_seam = 0;
  r.launch_seam = .5e-6;
  EXPECT_EQ(kind(), DecodeKind::relay);
  r.relay_seam = 3e-6;
  EXPECT_EQ(kind(), DecodeKind::fused);
  // Nor does one on a GPU whose constants nobody measured.
  r.unmeasured = "NVIDIA H20";
  EXPECT_EQ(kind(), DecodeKind::relay);
  EXPECT_THAT(explain_decode({.kind = DecodeKind::relay}, step, h100(), r)[1],
              HasSubstr("no constants of 'NVIDIA H20'"));
}

TEST(DecodeChoice, ForcedFormsTakeAClusterOrSayWhyNot) {
  const auto choose = [](const char* text, const DecodeStep& step,
                         const FusedDevice& device = h100()) {
    return choose_decode(parse_decode(text), step, device, rates());
  };
  EXPECT_EQ(choose("fused", llama_7b(1024)).cluster, 3);
  EXPECT_EQ(choose("fused:cluster=3", llama_7b(1024)).cluster, 3);
  EXPECT_EQ(choose("apart", llama_7b(1024)).kind, DecodeKind::apart);
  const auto why = [&](const char* text, const DecodeStep& step,
                       const FusedDevice& device = h100()) {
    return error_of([&] { choose(text, step, device); }, ErrorCode::kUnsupported);
  };
  EXPECT_THAT(why("fused:cluster=4,scope=projected", llama_7b(1024)),
              HasSubstr("32 KV heads as clusters of 4 CTAs: the GPU runs 30 at once"));
  EXPECT_EQ(choose("fused:cluster=4", llama_7b(1024)).cluster, 4);
  FusedDevice small = h100();
  small.clusters[16] = 0;
  EXPECT_THAT(why("fused:cluster=16", llama_7b(1024), small),
              HasSubstr("32 KV heads as clusters of 16 CTAs: the GPU runs 0 at once"));
  EXPECT_EQ(choose("fused:split=head", llama_7b(1024)).cluster, 2);
  EXPECT_THAT(why("fused:split=head,cluster=3", llama_7b(1024)),
              HasSubstr("split=head, heads of 128 over 3 CTAs: parts of 16, 32 or 64 elements"));
  EXPECT_THAT(why("fused:split=head,scope=projected,cluster=4", llama_7b(1024)),
              HasSubstr("the GPU runs 30 at once"));
  EXPECT_THAT(why("fused:split=head", together(llama_7b(1024), 4)),
              HasSubstr("split=head: a single token"));
  DecodeStep step = llama_7b(1024);
  step.block.head_dim = 80;
  EXPECT_THAT(why("fused", step), HasSubstr("head dim 80: 64 or 128"));
  step = llama_7b(1024);
  step.block.group = 32;
  EXPECT_THAT(why("fused", step), HasSubstr("32 query heads for a KV head: 1 to 8"));
  step = llama_7b(1024);
  step.block.weights[1] = DType::q4_k;
  EXPECT_THAT(why("fused:cluster=2", step), HasSubstr("weight k is q4_k: bf16"));
  step = llama_7b(1024);
  step.block.tokens = 17;
  EXPECT_THAT(why("fused", step), HasSubstr("17 tokens a step: 16 at most"));
  FusedDevice none = h100();
  none.compute_capability = 80;
  EXPECT_THAT(why("fused", llama_7b(1024), none), HasSubstr("has no clusters"));
}

// What fused blocks do not take, `auto` takes otherwise, and the explanation has the reason.
TEST(DecodeChoice, AutoTakesAnotherFormAndSaysWhy) {
  const auto lines = [](const std::function<void(DecodeStep&)>& change) {
    DecodeStep step = llama_7b(1024);
    change(step);
    const DecodeForm form = choose_decode({}, step, h100(), rates());
    EXPECT_EQ(form.kind, step.no_relay.empty() ? DecodeKind::relay : DecodeKind::apart);
    return explain_decode(form, step, h100(), rates());
  };
  const auto has = [](const char* why) { return testing::Contains(HasSubstr(why)); };
  EXPECT_THAT(lines([](DecodeStep& s) { s.block.head_dim = 80; }), has("head dim 80: 64 or 128"));
  EXPECT_THAT(lines([](DecodeStep& s) { s.block.group = 32; }),
              has("32 query heads for a KV head"));
  EXPECT_THAT(lines([](DecodeStep& s) { s.block.weights[2] = DType::q6_k; }),
              has("weight v is q6_k: bf16 or f16"));
  EXPECT_THAT(lines([](DecodeStep& s) { s.block.cache = DType::f32; }), has("a cache in f32"));
  EXPECT_THAT(lines([](DecodeStep& s) { s = together(s, 17); }),
              has("17 tokens a step: 16 at most"));
}

// Blocks of several tokens are forced alone, with weights read once for all tokens.
TEST(DecodeChoice, OfSeveralTokens) {
  DecodeStep step = llama_7b(1024);
  step.block.tokens = 4;
  step.no_relay = "4 tokens a step: 1";
  EXPECT_EQ(choose_decode({}, step, h100(), rates()).kind, DecodeKind::apart);
  const DecodeForm form = choose_decode(parse_decode("fused"), step, h100(), rates());
  EXPECT_EQ(form.kind, DecodeKind::fused);
  const double one = price_of(llama_7b(1024), form), four = price_of(step, form);
  EXPECT_LT(four, 1.5 * one);
  EXPECT_GT(four, 1.1 * one);
  EXPECT_THAT(explain_decode(form, step, h100(), rates())[0],
              HasSubstr("decode steps of 4 tokens, priced with 1024 keys each: fused"));
}

TEST(DecodeChoice, ExplainsEachCandidate) {
  const DecodeForm chosen = choose_decode({}, llama_7b(1024), h100(), rates());
  const std::vector<std::string> lines = explain_decode(chosen, llama_7b(1024), h100(), rates());
  // Clusters of 1 to 16 up to attention, of 1, 2 and 3 with the projection; heads over 2, 4 and 8,
  // and over 2.
  ASSERT_EQ(lines.size(), 1u + 2 + 2 * (16 + 3 + 3 + 1));
  EXPECT_EQ(lines[0], "decode steps of one token, priced with 1024 keys: relay");
  EXPECT_THAT(lines[1], HasSubstr("relay: "));
  EXPECT_THAT(lines[1], HasSubstr("(chosen)"));
  EXPECT_THAT(lines[2], HasSubstr("% more)"));
  FusedDevice none = h100();
  none.compute_capability = 80;
  const auto without = explain_decode(chosen, llama_7b(1024), none, rates());
  EXPECT_THAT(without.back(), HasSubstr("has no clusters"));
}

}  // namespace
}  // namespace braid::cuda
