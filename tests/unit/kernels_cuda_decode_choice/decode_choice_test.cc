// Which form a decode step takes, for how much and why: without a GPU.
#include "braid/kernels/cuda/decode_choice/decode_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "unit/kernels_cuda_decode_choice/model_steps.h"

namespace braid::cuda {
namespace {

using namespace testing_steps;
using testing::HasSubstr;

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
                           "fused:cluster=2,parts=8,split=token,scope=qkv,exchange=chip",
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
  EXPECT_EQ(error("fused:parts=17"), "--decode: parts is '17', wanted 1 to 16");
  EXPECT_EQ(error("fused:parts=0"), "--decode: parts is '0', wanted 1 to 16");
  EXPECT_EQ(error("fused:split=keys"), "--decode: split is 'keys', wanted token or head");
  EXPECT_EQ(error("fused:scope=all"), "--decode: scope is 'all', wanted qkv or projected");
  EXPECT_EQ(error("fused:exchange=l2"), "--decode: exchange is 'l2', wanted chip or memory");
  EXPECT_THAT(error("fused:cluster=4,depth=2"), HasSubstr("fused has no 'depth'"));
  EXPECT_THAT(error("fused:"), HasSubstr("fused has no ''"));
}

TEST(DecodeChoice, TakesTheRelayWhereNothingGains) {
  for (const int64_t context : {1, 1024, 16384}) {
    for (const DecodeStep& step : {llama_7b(context), llama_1b(context), qwen_06b(context)}) {
      EXPECT_EQ(choose_decode({}, step, h100(), rates()).kind, DecodeKind::relay);
    }
  }
}

// An H200 has constants of its own, and the relay measured best there, too.
TEST(DecodeChoice, OfAnH200) {
  EXPECT_EQ(h200_rates().unmeasured, "");
  for (const int64_t context : {1024, 4096, 16384}) {
    for (const DecodeStep& step :
         {llama_7b(context), llama_8b(context), llama_1b(context), qwen_06b(context)}) {
      EXPECT_EQ(choose_decode({}, step, h200(), h200_rates()).kind, DecodeKind::relay);
      const DecodeStep several = together(step, 4);
      EXPECT_EQ(choose_decode({}, several, h200(), h200_rates()).kind, DecodeKind::apart);
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
  r.parts_seam = 1;  // a cluster for each KV head
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
  EXPECT_EQ(choose("fused", llama_1b(1024)).parts, 1);
  EXPECT_EQ(choose("fused:parts=2", llama_1b(1024)).parts, 2);
  EXPECT_EQ(choose("fused:cluster=2,parts=5", llama_1b(1024)).cluster, 2);
  EXPECT_EQ(why("fused:cluster=8,parts=2", llama_1b(1024)),
            "--decode fused:cluster=8,parts=2,split=token,scope=qkv,exchange=chip: 8 KV heads as 2 "
            "clusters of 8 CTAs each: the GPU runs 15 at once");
  EXPECT_THAT(why("fused:split=head,cluster=2,parts=2", llama_1b(1024)),
              HasSubstr("split=head with 2 clusters of a KV head: 1"));
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
  EXPECT_THAT(why("fused", step), HasSubstr("32 query heads for a KV head: 1 to 16"));
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
  // and over 2; four clusters of one CTA and two clusters of two CTAs for a KV head.
  ASSERT_EQ(lines.size(), 1u + 2 + 2 * (16 + 3 + 3 + 1) + 2 * 2 * 2);
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
