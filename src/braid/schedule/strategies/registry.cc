#include "braid/schedule/strategies/registry.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace braid {
namespace {

struct Named {
  std::string_view name;
  std::unique_ptr<OpScheduler> (*make)();
  ProgramKind kind = ProgramKind::any;
};

constexpr Named kStrategies[] = {
    {.name = "sequential", .make = sequential_strategy},
    {.name = "overlap", .make = overlap_strategy},
    {.name = "nanoflow", .make = nanoflow_strategy},
    {.name = "gemm_collective", .make = gemm_collective_strategy},
    {.name = "tokenweave", .make = tokenweave_strategy},
    {.name = "sequence_parallel",
     .make = sequence_parallel_strategy,
     .kind = ProgramKind::sequence},
    {.name = "cfg_passes", .make = cfg_passes_strategy, .kind = ProgramKind::passes},
    {.name = "sbo", .make = sbo_strategy, .kind = ProgramKind::experts},
    {.name = "dbo", .make = dbo_strategy, .kind = ProgramKind::experts},
    {.name = "comet", .make = comet_strategy, .kind = ProgramKind::experts},
};

// dlopen maps what a library's header names: a file cut short would end the process later.
void require_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  const auto read = [&](uint64_t at, auto& into) {
    return file.seekg(static_cast<std::streamoff>(at)) &&
           file.read(reinterpret_cast<char*>(&into), sizeof(into));
  };
  Elf64_Ehdr header;
  if (!read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;  // dlopen says
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const bool there = read(header.e_phoff + i * sizeof(part), part);
    if (there && (part.p_offset <= size && part.p_filesz <= size - part.p_offset)) continue;
    fail(ErrorCode::kMalformed, "strategy: {} is cut short: it has {} bytes", path, size);
  }
}

std::shared_ptr<const OpScheduler> load_strategy(const std::string& name) {
  // A name without a slash would be looked for among the system's libraries.
  const std::string path = name.find('/') == std::string::npos ? "./" + name : name;
  require_whole(path);
  const std::shared_ptr<void> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* l) {
    if (l != nullptr) dlclose(l);
  });
  if (!library) fail(ErrorCode::kInvalidArgument, "strategy: {}", dlerror());
  const auto abi = reinterpret_cast<int (*)()>(dlsym(library.get(), "braid_strategy_abi"));
  const auto make =
      reinterpret_cast<OpScheduler* (*)()>(dlsym(library.get(), "braid_make_strategy"));
  if (abi == nullptr || make == nullptr) {
    fail(ErrorCode::kInvalidArgument, "strategy: {} has no BRAID_STRATEGY", path);
  }
  if (abi() != kStrategyAbi) {
    fail(ErrorCode::kUnsupported, "strategy: {} was built for version {}, this is version {}", path,
         abi(), kStrategyAbi);
  }
  return {make(), [library](const OpScheduler* strategy) { delete strategy; }};
}

}  // namespace

std::vector<std::string> strategy_names(ProgramKind kind) {
  std::vector<std::string> names;
  for (const Named& strategy : kStrategies) {
    if (strategy.kind == ProgramKind::any || strategy.kind == kind) {
      names.emplace_back(strategy.name);
    }
  }
  return names;
}

std::vector<std::string> all_strategy_names() {
  std::vector<std::string> names;
  for (const Named& strategy : kStrategies) names.emplace_back(strategy.name);
  return names;
}

bool is_strategy_file(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".so");
}

std::shared_ptr<const OpScheduler> find_strategy(const std::string& name) {
  if (is_strategy_file(name)) return load_strategy(name);
  for (const Named& strategy : kStrategies) {
    if (strategy.name == name) return strategy.make();
  }
  std::string names;
  for (const Named& strategy : kStrategies) names += fmt::format("{}, ", strategy.name);
  fail(ErrorCode::kInvalidArgument, "strategy: '{}' is not known; there are {}auto, and any .so",
       name, names);
}

}  // namespace braid
