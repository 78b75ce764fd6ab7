#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
}

namespace braid::libav {

// The functions in libavformat, libavcodec and libavutil for writing a video. The libraries are
// loaded at first need: they bring a hundred others along.
struct Library {
  // Fails with kUnsupported, naming the package, if the libraries are not installed in this build's
  // versions.
  static const Library& get();

  decltype(&::av_strerror) strerror = nullptr;
  decltype(&::av_log_set_level) log_set_level = nullptr;
  decltype(&::av_malloc) malloc = nullptr;
  decltype(&::av_freep) freep = nullptr;
  decltype(&::av_opt_set) opt_set = nullptr;
  decltype(&::av_dict_set) dict_set = nullptr;
  decltype(&::av_frame_alloc) frame_alloc = nullptr;
  decltype(&::av_frame_free) frame_free = nullptr;
  decltype(&::av_frame_get_buffer) frame_get_buffer = nullptr;
  decltype(&::av_frame_make_writable) frame_make_writable = nullptr;
  decltype(&::avcodec_find_encoder_by_name) find_encoder = nullptr;
  decltype(&::avcodec_alloc_context3) alloc_codec = nullptr;
  decltype(&::avcodec_free_context) free_codec = nullptr;
  decltype(&::avcodec_open2) open_codec = nullptr;
  decltype(&::avcodec_parameters_from_context) parameters_from = nullptr;
  decltype(&::avcodec_send_frame) send_frame = nullptr;
  decltype(&::avcodec_receive_packet) receive_packet = nullptr;
  decltype(&::av_packet_alloc) packet_alloc = nullptr;
  decltype(&::av_packet_free) packet_free = nullptr;
  decltype(&::av_packet_rescale_ts) packet_rescale = nullptr;
  decltype(&::avformat_alloc_output_context2) alloc_format = nullptr;
  decltype(&::avformat_free_context) free_format = nullptr;
  decltype(&::avformat_new_stream) new_stream = nullptr;
  decltype(&::avformat_write_header) write_header = nullptr;
  decltype(&::av_interleaved_write_frame) write_frame = nullptr;
  decltype(&::av_write_trailer) write_trailer = nullptr;
  decltype(&::avio_alloc_context) alloc_io = nullptr;
  decltype(&::avio_context_free) free_io = nullptr;
  decltype(&::avio_flush) flush_io = nullptr;

 private:
  Library();
};

}  // namespace braid::libav
