#include "braid/io/media/png.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int64_t kMaxSide = 1'000'000;  // libpng's own limit

// libpng reports an error by a jump. A function that calls libpng after setjmp has no objects to
// destroy: all its data is in a struct made by the caller.
struct Message {
  char text[200] = {};
};

void on_error(png_structp png, png_const_charp message) {
  auto* kept = static_cast<Message*>(png_get_error_ptr(png));
  std::strncpy(kept->text, message, sizeof kept->text - 1);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

// The file as it grows. Exceptions (no memory) may not pass through libpng's functions.
struct Output {
  std::string bytes;
  bool failed = false;
};
void append(png_structp png, png_bytep data, size_t size) {
  auto* out = static_cast<Output*>(png_get_io_ptr(png));
  try {
    out->bytes.append(reinterpret_cast<const char*>(data), size);
  } catch (...) {
    out->failed = true;
  }
  if (out->failed) png_error(png, "no memory for the file");
}

struct Writer {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Message message;
  Output out;
  std::vector<png_text> texts;
  std::vector<png_bytep> rows;
  ~Writer() { png_destroy_write_struct(&png, &info); }
};

bool write(Writer& w, const RgbImage& image) {
  if (setjmp(png_jmpbuf(w.png))) return false;
  png_set_write_fn(w.png, &w.out, append, nullptr);
  png_set_user_limits(w.png, kMaxSide, kMaxSide);
  png_set_IHDR(w.png, w.info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  // Pictures with noise: libpng's defaults take ten times as long for files 4% smaller.
  png_set_filter(w.png, PNG_FILTER_TYPE_BASE, PNG_FILTER_UP);
  png_set_compression_strategy(w.png, Z_RLE);
  png_set_sRGB(w.png, w.info, PNG_sRGB_INTENT_PERCEPTUAL);
  png_set_text(w.png, w.info, w.texts.data(), static_cast<int>(w.texts.size()));
  png_write_info(w.png, w.info);
  png_write_image(w.png, w.rows.data());
  png_write_end(w.png, nullptr);
  return true;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void check(const RgbImage& image, const PngTexts& texts) {
  if (image.width <= 0 || image.height <= 0 || image.width > kMaxSide || image.height > kMaxSide) {
    fail(ErrorCode::kInvalidArgument, "a PNG file of {}x{} pixels, sides may be 1 to {}",
         image.width, image.height, kMaxSide);
  }
  BRAID_CHECK(std::ssize(image.pixels) == image.height * image.width * 3, "{}",
              image.pixels.size());
  for (const auto& [keyword, text] : texts) {
    const bool printable =
        std::ranges::all_of(keyword, [](char c) { return c >= ' ' && c <= '~'; });
    if (keyword.empty() || keyword.size() > 79 || !printable) {
      fail(ErrorCode::kInvalidArgument,
           "a keyword of {} bytes for a PNG file, wanted are 1 to 79 printable ASCII characters",
           keyword.size());
    }
    if (text.find('\0') != text.npos) {
      fail(ErrorCode::kInvalidArgument, "the text {} of a PNG file has a NUL byte", keyword);
    }
  }
}

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Message message;
  std::string_view left;
  RgbImage image;
  int64_t packed_bytes = 0;  // that the pixels have in the file, before deflate
  std::vector<png_bytep> rows;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void take(png_structp png, png_bytep data, size_t size) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (size > reader->left.size()) png_error(png, "the file ends early");
  std::memcpy(data, reader->left.data(), size);
  reader->left.remove_prefix(size);
}

bool read_header(Reader& r) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_set_read_fn(r.png, &r, take);
  png_set_user_limits(r.png, kMaxSide, kMaxSide);
  png_read_info(r.png, r.info);
  r.image.width = png_get_image_width(r.png, r.info);
  r.image.height = png_get_image_height(r.png, r.info);
  r.packed_bytes = r.image.height * static_cast<int64_t>(png_get_rowbytes(r.png, r.info));
  png_set_expand(r.png);
  png_set_strip_16(r.png);
  png_set_strip_alpha(r.png);
  png_set_gray_to_rgb(r.png);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  if (static_cast<int64_t>(png_get_rowbytes(r.png, r.info)) != r.image.width * 3) {
    png_error(r.png, "the pixels are no RGB");
  }
  return true;
}

bool read_pixels(Reader& r) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_read_image(r.png, r.rows.data());
  png_read_end(r.png, r.info);
  return true;
}

// Pointers to a picture's rows; libpng wants writable pointers, even for writing a file.
std::vector<png_bytep> rows_of(const RgbImage& image) {
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) {
    rows.push_back(const_cast<png_bytep>(image.pixels.data() + (y * image.width * 3)));
  }
  return rows;
}

}  // namespace

std::string encode_png(const RgbImage& image, const PngTexts& texts) {
  check(image, texts);
  Writer w;
  w.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w.message, on_error, on_warning);
  w.info = w.png ? png_create_info_struct(w.png) : nullptr;
  if (!w.info) fail(ErrorCode::kResource, "libpng has no memory for a file");
  for (const auto& [keyword, text] : texts) {
    // libpng takes pointers to char and does not write through them.
    png_text& entry = w.texts.emplace_back();
    entry.compression = is_ascii(text) ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    entry.key = const_cast<char*>(keyword.c_str());
    entry.text = const_cast<char*>(text.c_str());
    (is_ascii(text) ? entry.text_length : entry.itxt_length) = text.size();
  }
  w.rows = rows_of(image);
  if (!write(w, image)) {
    fail(ErrorCode::kResource, "libpng cannot write a picture of {}x{}: {}", image.width,
         image.height, w.message.text);
  }
  return std::move(w.out.bytes);
}

PngFile decode_png(std::string_view bytes, std::string_view name) {
  Reader r;
  r.left = bytes;
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r.message, on_error, on_warning);
  r.info = r.png ? png_create_info_struct(r.png) : nullptr;
  if (!r.info) fail(ErrorCode::kResource, "libpng has no memory for {}", name);
  const auto refuse = [&] {
    fail(ErrorCode::kMalformed, "{} is no PNG file that can be read: {}", name, r.message.text);
  };
  if (!read_header(r)) refuse();
  // Deflate packs at most 1032 bytes in one: a small file may not ask for much memory.
  if (r.packed_bytes / 1032 > std::ssize(bytes)) {
    fail(ErrorCode::kMalformed, "{} has {} bytes for {}x{} pixels", name, bytes.size(),
         r.image.width, r.image.height);
  }
  r.image.pixels.resize(static_cast<size_t>(r.image.height * r.image.width * 3));
  r.rows = rows_of(r.image);
  if (!read_pixels(r)) refuse();
  PngFile file;
  png_textp texts = nullptr;
  int count = 0;
  png_get_text(r.png, r.info, &texts, &count);
  for (int i = 0; i < count; ++i) {
    const png_text& text = texts[i];
    const size_t length = text.compression > 0 ? text.itxt_length : text.text_length;
    file.texts.emplace_back(text.key, std::string(text.text, length));
  }
  file.image = std::move(r.image);
  return file;
}

}  // namespace braid
