#include "braid/io/media/libav/library.h"

#include "braid/io/media/loaded_library.h"

namespace braid::libav {
namespace {

LoadedLibrary load(const char* name, int version) {
  return {fmt::format("lib{}.so.{}", name, version), fmt::format("lib{}{}", name, version),
          "MP4 and WebM", ".y4m or .png"};
}

}  // namespace

Library::Library() {
  const LoadedLibrary util = load("avutil", LIBAVUTIL_VERSION_MAJOR);
  util.take(strerror, "av_strerror");
  util.take(log_set_level, "av_log_set_level");
  util.take(malloc, "av_malloc");
  util.take(freep, "av_freep");
  util.take(opt_set, "av_opt_set");
  util.take(dict_set, "av_dict_set");
  util.take(frame_alloc, "av_frame_alloc");
  util.take(frame_free, "av_frame_free");
  util.take(frame_get_buffer, "av_frame_get_buffer");
  util.take(frame_make_writable, "av_frame_make_writable");
  const LoadedLibrary codec = load("avcodec", LIBAVCODEC_VERSION_MAJOR);
  codec.take(find_encoder, "avcodec_find_encoder_by_name");
  codec.take(alloc_codec, "avcodec_alloc_context3");
  codec.take(free_codec, "avcodec_free_context");
  codec.take(open_codec, "avcodec_open2");
  codec.take(parameters_from, "avcodec_parameters_from_context");
  codec.take(send_frame, "avcodec_send_frame");
  codec.take(receive_packet, "avcodec_receive_packet");
  codec.take(packet_alloc, "av_packet_alloc");
  codec.take(packet_free, "av_packet_free");
  codec.take(packet_rescale, "av_packet_rescale_ts");
  const LoadedLibrary format = load("avformat", LIBAVFORMAT_VERSION_MAJOR);
  format.take(alloc_format, "avformat_alloc_output_context2");
  format.take(free_format, "avformat_free_context");
  format.take(new_stream, "avformat_new_stream");
  format.take(write_header, "avformat_write_header");
  format.take(write_frame, "av_interleaved_write_frame");
  format.take(write_trailer, "av_write_trailer");
  format.take(alloc_io, "avio_alloc_context");
  format.take(free_io, "avio_context_free");
  format.take(flush_io, "avio_flush");
  log_set_level(AV_LOG_FATAL);  // errors come as return values
}

const Library& Library::get() {
  static const Library library;
  return library;
}

}  // namespace braid::libav
