// A job is refused if its processes have different libraries, or the build has no UCX.
#include "cli/job_program.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class LibrariesTest : public JobCliTest {
 protected:
  void SetUp() override {
    JobCliTest::SetUp();
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer wants to be loaded first";
#endif
  }
  static std::string preload(const char* library) {
    return fmt::format("LD_PRELOAD={}/{}.so", BRAID_PRELOADED, library);
  }
  // All end with status 2, and process 0 alone tells, in a line with both versions.
  static void expect_other(const char* library, const std::string& version) {
    const std::vector<Outcome> outcomes =
        job(2, {answer("--tp 2")}, {.process = 1, .words = preload(library)});
    for (const Outcome& o : outcomes) EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_THAT(outcomes[0].err, HasSubstr(fmt::format("libraries differ: rank 0 on {} has '{}'",
                                                       job::host_name(), job::job_libraries())));
    EXPECT_THAT(outcomes[0].err, HasSubstr(version));
    EXPECT_EQ(std::ranges::count(outcomes[0].err, '\n'), 1) << outcomes[0].err;
    EXPECT_EQ(outcomes[1].err, "");
  }
};

TEST_F(LibrariesTest, AnotherUcxIsNamedWithBothVersions) {
  expect_other("other_ucx", "has 'UCX 1.99.7, ");
}

TEST_F(LibrariesTest, AnotherPmixIsNamedWithBothVersions) {
  if (!job::has_pmix()) GTEST_SKIP() << "this build has no PMIx";
  expect_other("other_pmix", ", PMIx 9.8.7'");
}

// A PMIx library that does not reach the launcher's server takes each process for a job of one.
TEST_F(LibrariesTest, AProcessThatPmixTakesForAJobOfItsOwnIsRefused) {
  if (!job::has_pmix()) GTEST_SKIP() << "this build has no PMIx";
  for (const auto& [variables, text] :
       {std::pair{"PMIX_RANK=0 PMIX_NAMESPACE=7",
                  "the launcher's job is '7', PMIx says 'singleton.host.1'"},
        {"PMIX_RANK=0 PMIX_NAMESPACE=singleton.host.1 OMPI_COMM_WORLD_RANK=0 "
         "OMPI_COMM_WORLD_SIZE=4",
         "the launcher's variables say 4 processes, its PMIx server 1"}}) {
    const std::string command = fmt::format(
        "env {} {} timeout 60 {}/braid {} > {} 2> {} < /dev/null", variables,
        preload("lonely_pmix"), BRAID_BIN_DIR, answer("--tp 4"), path("out"), path("err"));
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2);
    EXPECT_THAT(read(path("err")), HasSubstr(text));
    EXPECT_EQ(read(path("out")), "");
  }
}

TEST_F(CliTest, AJobInABuildWithoutUcxNamesThePackage) {
  if (job::has_jobs()) GTEST_SKIP() << "this build has UCX";
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  expect_refused("run -m " + gguf() + " -p x --tp 2", 1,
                 "a job of 2 processes: this build has no UCX: build it with Debian's libucx-dev");
  EXPECT_EQ(braid("run -m " + gguf() + " -p x -n 1 --tp 2 --threads 1 --job none").status, 0);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) unsetenv(name);
  EXPECT_THAT(braid("--version").out,
              HasSubstr("jobs of several processes: none in this build (Debian's libucx-dev"));
}

}  // namespace
}  // namespace braid::golden
