#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "braid/base/error.h"
#include "braid/commands.h"
#include "braid/strict_values.h"
#include "braid/text_io.h"

namespace {

constexpr int kJobFailed = 1;
constexpr int kWrongUsage = 2;

int report(const char* message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "braid: %s\n", message);
  return status;
}

// There is no command: names what stands where one should.
void require_command(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) {
    braid::fail(braid::ErrorCode::kInvalidArgument, "a command is wanted: {}", names);
  }
  braid::fail(braid::ErrorCode::kInvalidArgument, "there is no '{}'; the commands are {}",
              rest.front(), names);
}

}  // namespace

int main(int argc, char** argv) {
  // A hardware queue for each stream: CUDA's own 8 are fewer than what several GPUs need, and a
  // wait in a shared queue holds up others' work. What the user says stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  CLI::App app("Serves large language models; hides communication behind computation.", "braid");
  app.set_version_flag("--version", "braid " BRAID_VERSION);
  app.require_subcommand(1);
  app.footer("braid COMMAND --help shows a command's options and examples.");
  braid::app::add_run(app);
  braid::app::add_tokenize(app);
  braid::app::add_detokenize(app);
  braid::app::add_perplexity(app);
  braid::app::add_inspect(app);
  braid::app::add_bench(app);
  braid::app::add_calibrate(app);
  braid::app::add_plan(app);
  braid::app::require_strict_values(app);
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& e) {  // --help, --version
      app.exit(e);
      if (!std::cout.flush()) braid::app::print("\n");  // which says why not
    } catch (const CLI::RequiredError&) {
      if (app.get_subcommands().empty()) require_command(app);
      throw;
    }
    return 0;
  } catch (const CLI::ParseError& e) {
    return report(e.what(), kWrongUsage);
  } catch (const braid::Error& e) {
    const bool usage = e.code() == braid::ErrorCode::kInvalidArgument;
    return report(e.what(), usage ? kWrongUsage : kJobFailed);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kJobFailed);
  } catch (const std::exception& e) {
    return report(e.what(), kJobFailed);
  }
}
