#include "braid/backend/cuda/upload.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Bytes [begin, end) in the packed rows of `src`.
struct Piece {
  std::byte* dst;
  TensorView src;
  int64_t begin;
  int64_t end;
};

void pack(std::byte* out, const Piece& piece) {
  const TensorView& src = piece.src;
  const int64_t width = bytes_of(src.dtype, src.cols());
  for (int64_t at = piece.begin; at < piece.end;) {
    const int64_t within = at % width;
    // Rows that lie together are copied together.
    const int64_t n =
        src.row_bytes == width ? piece.end - at : std::min(piece.end - at, width - within);
    std::memcpy(out + (at - piece.begin), src.row(at / width) + within, n);
    at += n;
  }
}

// A thread's means for copying: two pinned buffers in turns, and a stream to drain the buffers.
class Lane {
 public:
  Lane(int device, int64_t piece_bytes) : Lane() {  // delegated: a throw below runs ~Lane
    check_cuda(cudaSetDevice(device), "upload: device");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "upload: stream");
    for (Buffer& buffer : buffers_) {
      check_cuda(
          cudaHostAlloc(reinterpret_cast<void**>(&buffer.data), piece_bytes, cudaHostAllocPortable),
          "upload: pinned buffer");
      check_cuda(cudaEventCreateWithFlags(&buffer.drained, cudaEventDisableTiming),
                 "upload: event");
    }
  }
  ~Lane() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (Buffer& buffer : buffers_) {
      if (buffer.drained != nullptr) cudaEventDestroy(buffer.drained);
      cudaFreeHost(buffer.data);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void copy(const Piece& piece) {
    Buffer& buffer = buffers_[turn_ ^= 1];
    check_cuda(cudaEventSynchronize(buffer.drained), "upload: copy");
    pack(buffer.data, piece);
    check_cuda(cudaMemcpyAsync(piece.dst + piece.begin, buffer.data, piece.end - piece.begin,
                               cudaMemcpyHostToDevice, stream_),
               "upload: copy");
    check_cuda(cudaEventRecord(buffer.drained, stream_), "upload: event");
  }

  void drain() { check_cuda(cudaStreamSynchronize(stream_), "upload: copy"); }

 private:
  Lane() = default;

  struct Buffer {
    std::byte* data = nullptr;
    cudaEvent_t drained = nullptr;  // its last outgoing copy
  };
  cudaStream_t stream_ = nullptr;
  Buffer buffers_[2];
  int turn_ = 0;
};

}  // namespace

struct Uploader::Shared {
  int device;
  UploadConfig config;
  std::mutex mutex;
  std::condition_variable work;  // for the threads
  std::condition_variable idle;  // for `finish`
  std::deque<Piece> pieces;
  int64_t open = 0;  // pieces that are queued, being copied, or not drained
  bool ending = false;
  std::exception_ptr error;
  std::vector<std::thread> threads;

  void run();
  void rethrow_error();  // with the mutex held
};

// Takes pieces until the end; drains the stream when no piece is left, so that `open` falls to 0
// only after all bytes have arrived.
void Uploader::Shared::run() {
  std::unique_ptr<Lane> lane;
  int64_t undrained = 0;
  std::unique_lock lock(mutex);
  while (true) {
    if (pieces.empty() && undrained == 0) {
      if (ending) return;
      work.wait(lock);
      continue;
    }
    std::optional<Piece> mine;
    if (!pieces.empty()) {
      mine = pieces.front();
      pieces.pop_front();
    }
    const bool broken = error != nullptr;
    lock.unlock();
    std::exception_ptr failed;
    try {
      if (mine && !broken) {
        if (lane == nullptr) lane = std::make_unique<Lane>(device, config.piece_bytes);
        lane->copy(*mine);
      }
      if (!mine && lane != nullptr) lane->drain();
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    if (failed != nullptr && error == nullptr) error = failed;
    if (mine) {
      ++undrained;
    } else {
      open -= undrained;
      undrained = 0;
      if (open == 0) idle.notify_all();
    }
  }
}

void Uploader::Shared::rethrow_error() {
  if (error == nullptr) return;
  std::exception_ptr failed;
  std::swap(failed, error);
  std::rethrow_exception(failed);
}

Uploader::Uploader(int device, const UploadConfig& config) : shared_(std::make_unique<Shared>()) {
  Shared& s = *shared_;
  s.device = device;
  s.config = config;
  if (s.config.threads == 0) {
    s.config.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
  }
  BRAID_CHECK(s.config.threads > 0 && s.config.piece_bytes > 0);
  for (int i = 0; i < s.config.threads; ++i) s.threads.emplace_back([&s] { s.run(); });
}

Uploader::~Uploader() {
  {
    std::lock_guard lock(shared_->mutex);
    shared_->ending = true;
    shared_->open -= std::ssize(shared_->pieces);
    shared_->pieces.clear();
  }
  shared_->work.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void Uploader::copy(void* dst, const TensorView& src) {
  Shared& s = *shared_;
  const int64_t bytes = src.bytes();
  {
    std::lock_guard lock(s.mutex);
    s.rethrow_error();
    for (int64_t begin = 0; begin < bytes; begin += s.config.piece_bytes) {
      s.pieces.push_back({static_cast<std::byte*>(dst), src, begin,
                          std::min(bytes, begin + s.config.piece_bytes)});
      ++s.open;
    }
  }
  s.work.notify_all();
}

void Uploader::finish() {
  std::unique_lock lock(shared_->mutex);
  shared_->idle.wait(lock, [this] { return shared_->open == 0; });
  shared_->rethrow_error();
}

}  // namespace braid::cuda
