#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "braid/base/error.h"
#include "braid/commands.h"
#include "braid/io/mapping_fault.h"
#include "braid/strict_values.h"

namespace {

constexpr int kJobFailed = 1;
constexpr int kWrongUsage = 2;

int report(const char* message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "braid: %s\n", message);
  return status;
}

// What to say where there is no command.
std::string wanted_command(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  const std::vector<std::string> rest = app.remaining();
  return rest.empty() ? fmt::format("a command is wanted: {}", names)
                      : fmt::format("there is no '{}'; the commands are {}", rest[0], names);
}

}  // namespace

int main(int argc, char** argv) {
  // A hardware queue for each stream: CUDA's own 8 are fewer than what several GPUs need, and a
  // wait in a shared queue holds up others' work. What the user says stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  braid::report_mapping_faults();
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
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    app.exit(e);
    return std::cout.flush() ? 0 : report("cannot write to the output", kJobFailed);
  } catch (const CLI::RequiredError& e) {
    const bool named = !app.get_subcommands().empty();
    return report(named ? e.what() : wanted_command(app).c_str(), kWrongUsage);
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
