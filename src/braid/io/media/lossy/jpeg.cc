#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>

// jpeglib.h wants FILE to be known.
#include <jpeglib.h>

#include "braid/base/error.h"
#include "braid/io/media/loaded_library.h"
#include "braid/io/media/lossy.h"

namespace braid {
namespace {

struct Jpeg {
  static const Jpeg& get() {
    static const Jpeg functions;
    return functions;
  }

  decltype(&::jpeg_std_error) std_error = nullptr;
  decltype(&::jpeg_CreateCompress) create = nullptr;
  decltype(&::jpeg_mem_dest) to_memory = nullptr;
  decltype(&::jpeg_set_defaults) set_defaults = nullptr;
  decltype(&::jpeg_set_quality) set_quality = nullptr;
  decltype(&::jpeg_start_compress) start = nullptr;
  decltype(&::jpeg_write_marker) write_marker = nullptr;
  decltype(&::jpeg_write_scanlines) write_rows = nullptr;
  decltype(&::jpeg_finish_compress) finish = nullptr;
  decltype(&::jpeg_destroy_compress) destroy = nullptr;

 private:
  Jpeg() {
    // Debian's library has the interface of version 6.2, Ubuntu's of 8.
    const bool old = JPEG_LIB_VERSION < 80;
    const LoadedLibrary library(old ? "libjpeg.so.62" : "libjpeg.so.8",
                                old ? "libjpeg62-turbo" : "libjpeg-turbo8", "JPEG files", ".png");
    library.take(std_error, "jpeg_std_error");
    library.take(create, "jpeg_CreateCompress");
    library.take(to_memory, "jpeg_mem_dest");
    library.take(set_defaults, "jpeg_set_defaults");
    library.take(set_quality, "jpeg_set_quality");
    library.take(start, "jpeg_start_compress");
    library.take(write_marker, "jpeg_write_marker");
    library.take(write_rows, "jpeg_write_scanlines");
    library.take(finish, "jpeg_finish_compress");
    library.take(destroy, "jpeg_destroy_compress");
  }
};

// libjpeg reports an error by a call that may not return. A function that calls libjpeg after
// setjmp has no objects to destroy: all its data is in a struct made by the caller.
struct Writer {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
  unsigned char* bytes = nullptr;  // of malloc
  unsigned long size = 0;          // NOLINT: libjpeg's type
  ~Writer() {
    Jpeg::get().destroy(&jpeg);
    std::free(bytes);
  }
};

void on_error(j_common_ptr jpeg) {
  auto* const writer = static_cast<Writer*>(jpeg->client_data);
  writer->errors.format_message(jpeg, writer->message);
  std::longjmp(writer->jump, 1);
}
void on_message(j_common_ptr, int) {}

bool write(Writer& w, const RgbImage& image, int quality, std::string_view comment) {
  constexpr size_t kSegment = 65533;
  const Jpeg& library = Jpeg::get();
  w.jpeg.err = library.std_error(&w.errors);
  w.errors.error_exit = on_error;
  w.errors.emit_message = on_message;
  w.jpeg.client_data = &w;
  if (setjmp(w.jump)) return false;
  library.create(&w.jpeg, JPEG_LIB_VERSION, sizeof w.jpeg);
  library.to_memory(&w.jpeg, &w.bytes, &w.size);
  w.jpeg.image_width = static_cast<JDIMENSION>(image.width);
  w.jpeg.image_height = static_cast<JDIMENSION>(image.height);
  w.jpeg.input_components = 3;
  w.jpeg.in_color_space = JCS_RGB;
  library.set_defaults(&w.jpeg);
  library.set_quality(&w.jpeg, quality, TRUE);
  library.start(&w.jpeg, TRUE);
  for (size_t at = 0; at < comment.size(); at += kSegment) {
    const std::string_view part = comment.substr(at, kSegment);
    library.write_marker(&w.jpeg, JPEG_COM, reinterpret_cast<const JOCTET*>(part.data()),
                         static_cast<unsigned>(part.size()));
  }
  while (w.jpeg.next_scanline < w.jpeg.image_height) {
    // libjpeg takes writable rows and does not write to them.
    auto* row = const_cast<JSAMPROW>(image.pixels.data() +
                                     static_cast<size_t>(w.jpeg.next_scanline) * 3 * image.width);
    library.write_rows(&w.jpeg, &row, 1);
  }
  library.finish(&w.jpeg);
  return true;
}

}  // namespace

void require_jpeg() {
  Jpeg::get();
}

std::string encode_jpeg(const RgbImage& image, int quality, std::string_view comment) {
  const auto w = std::make_unique<Writer>();
  if (!write(*w, image, quality, comment)) {
    fail(ErrorCode::kResource, "libjpeg cannot write a picture of {}x{}: {}", image.width,
         image.height, w->message);
  }
  return {reinterpret_cast<const char*>(w->bytes), w->size};
}

}  // namespace braid
