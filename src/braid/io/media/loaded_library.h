#pragma once

#include <string>

#include "braid/base/error.h"

namespace braid {

// A library of the distribution that is loaded at first need; the process keeps it.
class LoadedLibrary {
 public:
  // `file` is "libwebp.so.7". Fails with kUnsupported where it is not installed: `package` has it,
  // `files` need it ("MP4 and WebM"), and files of the names `others` do not (".y4m or .png").
  LoadedLibrary(std::string file, const std::string& package, const std::string& files,
                const std::string& others);

  template <class F>
  void take(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(find(name));
  }

 private:
  void* find(const char* name) const;

  std::string file_;
  void* library_;
};

}  // namespace braid
