#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "braid/base/error.h"
#include "braid/commands.h"
#include "braid/grammar/grammar_helper.h"
#include "braid/help.h"
#include "braid/interrupt.h"
#include "braid/io/mapping_fault.h"
#include "braid/job_options.h"
#include "braid/spelling.h"
#include "braid/strict_values.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace {

constexpr int kJobFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kInterrupted = 130;  // as shells say of Ctrl-C

int report(const std::string& message, int status) {
  if (status == kWrongUsage && !braid::app::is_first_process()) return status;
  std::fflush(stdout);
  std::fprintf(stderr, "braid: %s\n", message.c_str());
  return status;
}

void add_print_flag(CLI::App& app, const char* name, const char* what, std::string (*text)()) {
  app.add_flag_callback(
      name,
      [text] {
        braid::app::print(text());
        throw CLI::Success();
      },
      what);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string_view(braid::kHelperArgument))
    return braid::compile_grammar_main();  // a child of a server
  // A hardware queue for each stream: CUDA's own 8 are fewer than what several GPUs need, and a
  // wait in a shared queue holds up others' work. What the user says stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  braid::report_mapping_faults();
  CLI::App app("Runs large language models; hides communication behind computation.", "braid");
  app.require_subcommand(1);
  app.footer(
      "braid help COMMAND shows a command's options and examples.\n"
      "braid -m MODEL -p TEXT is braid run -m MODEL -p TEXT.");
  braid::app::add_run(app);
  braid::app::add_serve(app);
  braid::app::add_image(app);
  braid::app::add_video(app);
  braid::app::add_tokenize(app);
  braid::app::add_detokenize(app);
  braid::app::add_perplexity(app);
  braid::app::add_inspect(app);
  braid::app::add_bench(app);
  braid::app::add_calibrate(app);
  braid::app::add_plan(app);
  braid::app::add_ranks(app);
  braid::app::add_completion(app);
  braid::app::add_man(app);
  // These print and end, whatever else is said.
  add_print_flag(app, "--version", "version, commit, CUDA, instruction sets, devices",
                 braid::app::version_text);
  add_print_flag(app, "--list-devices", "what --device may name", braid::app::device_list);
  braid::app::require_strict_values(app);
  braid::app::use_our_help(app);
  try {
    std::vector<std::string> arguments =
        braid::app::in_our_spelling({argv + std::min(argc, 1), argv + argc}, app);
    std::ranges::reverse(arguments);  // as the parser takes them
    app.parse(std::move(arguments));
    return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    app.exit(e);
    return std::cout.flush() ? 0 : report("cannot write to the output", kJobFailed);
  } catch (const CLI::ExtrasError&) {
    return report(braid::app::about_leftovers(app), kWrongUsage);
  } catch (const CLI::RequiredError& e) {
    const CLI::App& command = braid::app::chosen_command(app);
    if (&command == &app) return report(braid::app::about_leftovers(app), kWrongUsage);
    return report(fmt::format("{} ({} --help says more)", e.what(), braid::app::full_name(command)),
                  kWrongUsage);
  } catch (const CLI::ParseError& e) {
    return report(e.what(), kWrongUsage);
  } catch (const braid::app::JobEnded& e) {
    return e.status;
  } catch (const braid::app::Interrupted&) {
    return kInterrupted;
  } catch (const braid::Error& e) {
    const bool usage = e.code() == braid::ErrorCode::kInvalidArgument;
    return report(e.what(), usage ? kWrongUsage : kJobFailed);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kJobFailed);
  } catch (const std::exception& e) {
    return report(e.what(), kJobFailed);
  }
}
