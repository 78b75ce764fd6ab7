#pragma once

#include <string>

#include "braid/base/error.h"

namespace braid {

// A library from the distribution, loaded at first need and kept by the process.
class LoadedLibrary {
 public:
  // `file` is "libwebp.so.7". Fails with kUnsupported if the file is not installed: `package` has
  // the library, `files` need it ("MP4 and WebM"), `others` do not (".y4m or .png").
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
