// Hugging Face's goldens, a token a step, under every form of `--decode` on one, two and four GPUs.
#include <gtest/gtest.h>

#include "braid/backend/cuda/device.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

class CudaDecodeForms : public testing::TestWithParam<std::string> {};

TEST_P(CudaDecodeForms, EqualGoldens) {
  if (usable_gpus() == 0 || cuda::device_info(0).compute_capability != 90) {
    GTEST_SKIP() << "no Hopper GPU";
  }
  const Folder folder(GetParam() + "_decode");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Golden golden = load_golden(GetParam());
  LogitsCheck check(loaded.model, golden);
  for (const std::string form :
       {"apart", "relay", "fused", "fused:cluster=1", "fused:scope=projected",
        "fused:exchange=memory", "fused:parts=2",
        "fused:cluster=2,parts=3,scope=projected,exchange=memory", "fused:split=head",
        "fused:split=head,scope=projected,exchange=memory"}) {
    const bool by_heads = form.find("split=head") != std::string::npos;
    for (const int tp : {1, 2, 4}) {
      // Over ranks, blocks use the kernel for several tokens; the kernel has no split by heads.
      if (tp > usable_gpus() || (by_heads && tp > 1)) continue;
      SCOPED_TRACE(fmt::format("{}, tp {}", form, tp));
      RunnerConfig config = cuda_runner(tp);
      config.decode = form;
      Runner runner(loaded.model, config);
      for (const Case& c : golden.cases) {
        const Rows rows = prompt_logits(runner, c.prompt, 1);
        check.expect(c, rows);
        EXPECT_EQ(prompt_logits(runner, c.prompt, 1), rows);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaDecodeForms,
                         testing::Values("llama_heads_of_64", "mistral_heads_of_64",
                                         "qwen2_heads_of_64", "qwen3_heads_of_128"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
