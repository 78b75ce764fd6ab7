#include "braid/io/media/loaded_library.h"

#include <dlfcn.h>

namespace braid {

LoadedLibrary::LoadedLibrary(std::string file, const std::string& package, const std::string& files,
                             const std::string& others)
    : file_(std::move(file)), library_(dlopen(file_.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
  if (library_) return;
  const char* why = dlerror();
  fail(ErrorCode::kUnsupported,
       "{} need {}, which is not installed (Debian, Ubuntu: {}); or name the file {}: {}", files,
       file_, package, others, why ? why : "cannot load it");
}

void* LoadedLibrary::find(const char* name) const {
  void* const function = dlsym(library_, name);
  if (!function) fail(ErrorCode::kUnsupported, "{} has no function {}", file_, name);
  return function;
}

}  // namespace braid
