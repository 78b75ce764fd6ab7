// MP4 (H.264) and WebM (VP9) by libavformat and libavcodec.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "braid/base/error.h"
#include "braid/io/media/libav/library.h"
#include "braid/io/media/video_file.h"
#include "braid/io/media/yuv_frame.h"

namespace braid {
namespace {

using libav::Library;

struct Container {
  const char* name;
  const char* title;
  std::vector<const char*> encoders;  // the first present encoder
  std::vector<std::pair<const char*, const char*>> options;
};

const Container& container_of(VideoFormat format) {
  static const Container kMp4 = {
      "mp4", "H.264", {"libx264", "libopenh264"}, {{"crf", "17"}, {"preset", "medium"}}};
  static const Container kWebm = {
      "webm",
      "VP9",
      {"libvpx-vp9"},
      {{"crf", "20"}, {"deadline", "good"}, {"cpu-used", "4"}, {"row-mt", "1"}}};
  return format == VideoFormat::mp4 ? kMp4 : kWebm;
}

const AVCodec* encoder_of(VideoFormat format) {
  const Library& av = Library::get();
  const Container& container = container_of(format);
  for (const char* name : container.encoders) {
    if (const AVCodec* codec = av.find_encoder(name)) return codec;
  }
  fail(ErrorCode::kUnsupported,
       "the installed libavcodec has no encoder {} for {}: name the file .y4m or .png",
       container.encoders[0], container.title);
}

int checked(int code, const char* what) {
  if (code >= 0) return code;
  std::array<char, 256> text{};
  Library::get().strerror(code, text.data(), text.size());
  fail(ErrorCode::kResource, "libavcodec cannot {}: {}", what, text.data());
}

template <class T>
T* present(T* made, const char* what) {
  if (!made) fail(ErrorCode::kResource, "libavcodec has no memory for {}", what);
  return made;
}

// A file in memory, with a place to write at.
struct Memory {
  std::string bytes;
  size_t at = 0;

  // Exceptions may not pass through the library.
  int write(const uint8_t* data, int size) noexcept {
    try {
      const auto n = static_cast<size_t>(size);
      if (bytes.size() < at + n) bytes.resize(at + n);
      std::memcpy(bytes.data() + at, data, n);
      at += n;
      return size;
    } catch (...) {
      return AVERROR(ENOMEM);
    }
  }
  static int64_t seek(void* opaque, int64_t offset, int whence) noexcept {
    auto& file = *static_cast<Memory*>(opaque);
    const auto size = static_cast<int64_t>(file.bytes.size());
    if (whence == AVSEEK_SIZE) return size;
    const int64_t from = whence == SEEK_SET   ? 0
                         : whence == SEEK_CUR ? static_cast<int64_t>(file.at)
                                              : size;
    if (from + offset < 0) return AVERROR(EINVAL);
    file.at = static_cast<size_t>(from + offset);
    return from + offset;
  }
};

// The library's objects, freed in the library's order.
struct Handles {
  Handles() = default;
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    av_.frame_free(&frame_);
    av_.packet_free(&packet_);
    av_.free_codec(&context_);
    av_.free_format(format_);
    if (io_) av_.freep(&io_->buffer);
    av_.free_io(&io_);
  }

  const Library& av_ = Library::get();
  AVFormatContext* format_ = nullptr;
  AVIOContext* io_ = nullptr;
  AVCodecContext* context_ = nullptr;
  AVPacket* packet_ = nullptr;
  AVFrame* frame_ = nullptr;
};

// An encoder with a container behind it.
class VideoWriter : Handles {
 public:
  VideoWriter(int64_t width, int64_t height, VideoFormat format, const VideoSettings& settings)
      : codec_(encoder_of(format)) {
    const Container& container = container_of(format);
    checked(av_.alloc_format(&format_, nullptr, container.name, nullptr), "open a container");
    constexpr int kBuffer = 1 << 16;
    auto* buffer = static_cast<uint8_t*>(present(av_.malloc(kBuffer), "a buffer"));
    // The data's type is const from version 61 on.
    const auto write = [](void* file, auto* data, int size) {
      return static_cast<Memory*>(file)->write(data, size);
    };
    io_ =
        present(av_.alloc_io(buffer, kBuffer, 1, &file_, nullptr, write, Memory::seek), "a buffer");
    format_->pb = io_;
    format_->flags |= AVFMT_FLAG_CUSTOM_IO;
    open_codec(width, height, settings.fps, container);
    stream_ = present(av_.new_stream(format_, nullptr), "a stream");
    stream_->time_base = context_->time_base;
    stream_->avg_frame_rate = context_->framerate;
    checked(av_.parameters_from(stream_->codecpar, context_), "describe the stream");
    if (!settings.comment.empty()) {
      checked(av_.dict_set(&format_->metadata, "comment", settings.comment.c_str(), 0),
              "keep a comment");
    }
    checked(av_.write_header(format_, nullptr), "write a header");
    packet_ = present(av_.packet_alloc(), "a packet");
    frame_ = present(av_.frame_alloc(), "a frame");
    frame_->format = context_->pix_fmt;
    frame_->width = context_->width;
    frame_->height = context_->height;
    checked(av_.frame_get_buffer(frame_, 0), "hold a frame");
  }
  void add(const YuvFrame& picture) {
    checked(av_.frame_make_writable(frame_), "hold a frame");
    copy(picture.y, picture.width, 0);
    copy(picture.u, picture.chroma_width(), 1);
    copy(picture.v, picture.chroma_width(), 2);
    frame_->pts = next_++;
    checked(av_.send_frame(context_, frame_), "encode a frame");
    drain();
  }

  std::string finish() {
    checked(av_.send_frame(context_, nullptr), "end a video");
    drain();
    checked(av_.write_trailer(format_), "end a file");
    av_.flush_io(io_);
    return std::move(file_.bytes);
  }

 private:
  void open_codec(int64_t width, int64_t height, int64_t fps, const Container& container) {
    context_ = present(av_.alloc_codec(codec_), "an encoder");
    context_->width = static_cast<int>(width);
    context_->height = static_cast<int>(height);
    context_->pix_fmt = AV_PIX_FMT_YUV420P;
    context_->time_base = {1, static_cast<int>(fps)};
    context_->framerate = {static_cast<int>(fps), 1};
    context_->color_range = AVCOL_RANGE_MPEG;
    context_->colorspace = AVCOL_SPC_BT709;
    context_->color_primaries = AVCOL_PRI_BT709;
    context_->color_trc = AVCOL_TRC_BT709;
    context_->chroma_sample_location = AVCHROMA_LOC_LEFT;
    context_->bit_rate = 0;
    context_->thread_count = 0;  // as many as there are cores
    if (format_->oformat->flags & AVFMT_GLOBALHEADER) {
      context_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    }
    for (const auto& [name, value] : container.options) {
      av_.opt_set(context_->priv_data, name, value, 0);  // encoders without the option keep theirs
    }
    checked(av_.open_codec(context_, codec_, nullptr), "open an encoder");
  }

  void copy(const std::vector<uint8_t>& plane, int64_t width, int index) {
    const auto w = static_cast<size_t>(width);
    for (size_t row = 0; row * w < plane.size(); ++row) {
      std::memcpy(frame_->data[index] + (static_cast<size_t>(frame_->linesize[index]) * row),
                  plane.data() + (row * w), w);
    }
  }

  void drain() {
    for (;;) {
      const int code = av_.receive_packet(context_, packet_);
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      checked(code, "encode a frame");
      packet_->duration = 1;
      packet_->stream_index = stream_->index;
      av_.packet_rescale(packet_, context_->time_base, stream_->time_base);
      checked(av_.write_frame(format_, packet_), "write a frame");
    }
  }

  const AVCodec* codec_;
  Memory file_;
  AVStream* stream_ = nullptr;  // of format_
  int64_t next_ = 0;
};

}  // namespace

bool has_video_codecs() {
  return true;
}

void require_codec(VideoFormat format) {
  encoder_of(format);
}

std::string encode_with_codec(std::span<const RgbImage> frames, VideoFormat format,
                              const VideoSettings& settings) {
  const int64_t width = frames[0].width, height = frames[0].height;
  if (width % 2 != 0 || height % 2 != 0) {
    fail(ErrorCode::kInvalidArgument, "a video of {} x {}: even sides are wanted", width, height);
  }
  VideoWriter writer(width, height, format, settings);
  for (const RgbImage& image : frames) writer.add(yuv_frame(image, ColourMatrix::bt709));
  return writer.finish();
}

}  // namespace braid
