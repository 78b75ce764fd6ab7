// What a script gets wrong: values that are empty or do not fit, outputs that cannot be written or
// would replace what is read, files that were cut short.
#include "cli/program.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BadValues : public CliTest {};

TEST_F(BadValues, NumbersAreDecimalAndFit) {
  const std::string run = "run -m " + hf() + " -p x ";
  for (const auto& [value, why] : {std::pair{"010", "'010' is not a whole number"},
                                   {"0x2", "'0x2' is not a whole number"},
                                   {"1e3", "'1e3' is not a whole number"},
                                   {"''", "'' is not a whole number"},
                                   {"99999999999999999999", "is out of range"},
                                   {"-99999999999999999999", "is out of range"}}) {
    expect_refused(run + "-n " + value, 2, why);
    expect_refused(run + "--seed " + value, 2, value[0] == '-' ? "wanted from 0 on" : why);
  }
  expect_refused(run + "--seed -1", 2, "--seed: -1, wanted from 0 on");
  expect_refused(run + "--top-k 9999999999", 2, "--top-k");
  for (const char* value : {"1e-400", "1e400"}) {
    expect_refused(run + "--link-gbps " + value, 2, "is out of range");
  }
  expect_refused(run + "--temperature ''", 2, "'' is not a number");
  expect_refused(run + "--logprobs -1", 2, "--logprobs is -1");
  expect_refused("bench -m " + hf() + " -p 0 -b 1,02", 2, "'02' is not a whole number");
  expect_refused("detokenize -m " + hf() + " ''", 2, "'' is not a whole number");
  EXPECT_EQ(braid(run + "-n 2 --seed 18446744073709551615 --top-p 1 --link-us 0").status, 0);
}

TEST_F(BadValues, EmptyIsNotTheSameAsAbsent) {
  const std::string run = "run -m " + hf() + " -p x ";
  for (const char* option : {"--stop", "--sp", "--machines", "--trace", "--schedule", "--device"}) {
    expect_refused(run + option + " ''", 2, fmt::format("{}: its value is empty", option));
  }
  expect_refused("bench attention --profile ''", 2, "--profile: its value is empty");
  EXPECT_EQ(braid("tokenize -m " + hf() + " --json --no-add-special ''").out, "[]\n");
}

TEST_F(BadValues, OptionsThatWouldDoNothingAreRefused) {
  expect_refused("run -m " + hf() + " -p x --system y", 2, "--system goes with --chat");
  expect_refused("plan --config " + hf() + "/config.json --machines 1x2 --tp 4", 2, "--tp is 4");
  EXPECT_THAT(braid("plan --config " + hf() + "/config.json --machines 1x2").out,
              HasSubstr("on 2 ranks"));
  EXPECT_THAT(braid("plan --config " + hf() + "/config.json --json --launches").out,
              HasSubstr("rms_norm"));
}

TEST_F(BadValues, FormsOfDecodeStepsAreNamed) {
  const std::string run = "run -m " + hf() + " -p x -n 1 --device cpu --decode ";
  expect_refused(run + "fast", 2, "--decode 'fast': wanted auto, apart, relay, fused or fused:");
  expect_refused(run + "fused:cluster=17", 2, "--decode: cluster is '17', wanted 1 to 16");
  expect_refused(run + "fused:cluster=0", 2, "--decode: cluster is '0', wanted 1 to 16");
  expect_refused(run + "fused:parts=17", 2, "--decode: parts is '17', wanted 1 to 16");
  expect_refused(run + "fused:split=keys", 2, "--decode: split is 'keys', wanted token or head");
  expect_refused(run + "fused:scope=all", 2, "--decode: scope is 'all', wanted qkv or projected");
  for (const char* form : {"fused", "relay"}) {
    expect_refused(run + form, 1, "the CPU runs each op by itself: auto or apart");
  }
  EXPECT_EQ(braid(run + "apart").status, 0);
  EXPECT_EQ(braid(run + "auto").status, 0);
}

TEST_F(BadValues, CommandsAreNamed) {
  expect_refused("foo", 2, "there is no 'foo'; the commands are run, serve");
  expect_refused("--bogus", 2, "braid run has no option --bogus");
}

TEST_F(BadValues, TextIsUtf8Everywhere) {
  const std::string bad = "\"$(printf 'a\\377b')\"";
  const std::string why = "byte 0xff at offset 1";
  expect_refused("tokenize -m " + hf() + " " + bad, 2, why);
  expect_refused("run -m " + hf() + " -p x --stop " + bad, 2, why);
  expect_refused("run -m " + hf() + " -p x --chat --system " + bad, 2, why);
  std::ofstream(path("bad.txt")) << "a\377b";
  expect_refused("perplexity -m " + hf() + " -f " + path("bad.txt"), 2, "bad.txt is not valid");
}

TEST_F(BadValues, OneTokenCanBeMeasured) {
  for (const char* sizes : {"-p 0 -n 1", "-p 1 -n 1", "-p 0 -n 1 -d 3 -b 2", "-p 0 -n 2"}) {
    const Outcome o = braid("bench -m " + gguf() + " -r 1 " + sizes);
    EXPECT_EQ(o.status, 0) << sizes << o.err;
    EXPECT_THAT(o.out, HasSubstr("tg")) << sizes;
  }
}

TEST_F(BadValues, ResultsComeBeforeFilesThatCannotBeWritten) {
  std::ofstream(path("text.txt")) << std::string(600, 'x');
  for (const auto& [command, result] :
       {std::pair{"bench -m " + gguf() + " -p 4 -n 2 -r 1", "pp4"},
        {"perplexity --ctx 16 -m " + hf() + " -f " + path("text.txt") + " --json", "perplexity"},
        {"plan --config " + hf() + "/config.json", "launches"}}) {
    const Outcome o = braid(command + " --trace /dev/full");
    EXPECT_EQ(o.status, 1) << command;
    EXPECT_THAT(o.out, HasSubstr(result)) << command;
    EXPECT_THAT(o.err, HasSubstr("/dev/full: No space left on device")) << command;
  }
  std::filesystem::create_symlink("/dev/full", path("full.svg"));
  const Outcome o = braid(
      "bench attention --shape custom --tokens 32 --text 0 --heads 2 --head-dim 16 --sp ring "
      "--machines 1x2 -r 1 --plot " +
      path("full.svg"));
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.out, HasSubstr("| ring |"));
  EXPECT_THAT(o.err, HasSubstr("full.svg: cannot be written: No space left"));
}

TEST_F(BadValues, OutputsDoNotReplaceInputs) {
  const std::string before = read(gguf());
  std::ofstream(path("text.txt")) << std::string(600, 'x');
  expect_refused("run -m " + gguf() + " -p x --trace " + gguf(), 2, "would replace what is read");
  fs::create_hard_link(gguf(), path("other_name.gguf"));
  expect_refused("bench -m " + gguf() + " --trace " + path("other_name.gguf"), 2, "would replace");
  expect_refused("plan -m " + hf() + " --trace " + hf() + "/model.safetensors", 2, "would replace");
  expect_refused(
      "perplexity -m " + hf() + " -f " + path("text.txt") + " --trace " + path("text.txt"), 2,
      "would replace");
  EXPECT_EQ(read(gguf()), before);
  // Of a model in the working folder new files do not replace any.
  const std::string here = fmt::format("cd {} && {}/braid ", hf(), BRAID_BIN_DIR);
  EXPECT_EQ(std::system((here + "run -m . -p x -n 1 > /dev/null 2>&1").c_str()), 0);
  EXPECT_EQ(std::system((here + "run -m . -p x -n 1 --trace new.json > /dev/null 2>&1").c_str()),
            0);
  fs::remove(hf() + "/new.json");
}

TEST_F(BadValues, AStrategyThatWasCutShortIsRefused) {
  const std::string whole = read(std::string(BRAID_STRATEGIES) + "/throws_in_split.so");
  ASSERT_GT(whole.size(), 5000u);
  for (size_t size : {0, 10, 64, 200, 4097}) {
    std::ofstream(path("short.so"), std::ios::binary) << whole.substr(0, size);
    expect_refused("run -m " + hf() + " -p x --schedule " + path("short.so"), size < 64 ? 2 : 1,
                   "short.so");
  }
}

TEST_F(BadValues, HelpThatNobodyGetsIsAnError) {
  const std::string command =
      fmt::format("{}/braid --help > /dev/full 2> {}", BRAID_BIN_DIR, path("err"));
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_THAT(read(path("err")), HasSubstr("cannot write to the output"));
}

TEST_F(BadValues, AProfileThatCannotBeWrittenIsKnownAtOnce) {
  expect_refused("calibrate -o " + path(""), 1, "Is a directory");
  expect_refused("calibrate -o /proc/profile.json", 1, "cannot write the profile");
  expect_refused("calibrate -o " + path("none/profile.json"), 1, "cannot write the profile");
  EXPECT_FALSE(std::filesystem::exists(path("none")));
  expect_refused("bench attention --plot " + path("none/x.svg"), 1, "cannot write --plot");
}

}  // namespace
}  // namespace braid::golden
