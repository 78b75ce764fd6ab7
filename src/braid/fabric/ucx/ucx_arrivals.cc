#include "braid/fabric/ucx/ucx_arrivals.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "braid/fabric/local/link_engine.h"
#include "braid/fabric/ucx/ucx_fabric.h"

namespace braid::fabric {

void copy_rows(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride,
               int64_t row_bytes, int64_t rows) {
  if (rows == 1 || (dst_stride == row_bytes && src_stride == row_bytes)) {
    std::memcpy(dst, src, static_cast<size_t>(row_bytes * rows));
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(dst + r * dst_stride, src + r * src_stride, static_cast<size_t>(row_bytes));
  }
}

UcxArrivals::UcxArrivals(UcxFabric& fabric)
    : fabric_(fabric), sources_(static_cast<size_t>(fabric.config_.processes)) {}

void UcxArrivals::add(const std::shared_ptr<UcxSegment>& segment) {
  std::lock_guard lock(fabric_.worker_.mutex());
  const auto index = static_cast<size_t>(segment->index());
  if (known_.size() <= index) known_.resize(index + 1);
  Known& known = known_[index];
  if (!known.name.empty()) compare(segment->index(), segment->name(), segment->bytes(), -1);
  known = {segment->name(), segment->bytes(), segment, true};
  // Each process compares with its predecessor: unequal processes are found anywhere.
  const UcxFabricConfig& config = fabric_.config_;
  if (config.processes > 1) {
    const UcxHeader header{.kind = UcxHeader::Kind::allocation,
                           .generation = static_cast<uint16_t>(config.generation),
                           .from = config.process,
                           .segment = static_cast<uint32_t>(index),
                           .offset = segment->bytes()};
    fabric_.worker_.send_copy((config.process + 1) % config.processes, kFabricMessages,
                              std::as_bytes(std::span(&header, 1)),
                              std::as_bytes(std::span(segment->name())));
  }
  for (Source& source : sources_) drain(source);
  const auto waits = [this](const UcxHeader& wish) { return !is_here(wish.segment); };
  const auto ready = std::partition(wishes_.begin(), wishes_.end(), waits);
  const std::vector<UcxHeader> wishes(ready, wishes_.end());
  wishes_.erase(ready, wishes_.end());
  for (const UcxHeader& wish : wishes) answer(wish);
}

// With the predecessor's allocation, or with this process' (from < 0).
void UcxArrivals::compare(int64_t index, const std::string& name, int64_t bytes, int from) {
  const Known& known = known_[static_cast<size_t>(index)];
  if (known.name == name && known.bytes == bytes) return;
  const int before = (fabric_.config_.process + fabric_.config_.processes - 1) %
                     fabric_.config_.processes * fabric_.ranks_here();
  const int here = fabric_.first_rank();
  const Error error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "symmetric allocation {}: rank {} asks for '{}' of {} bytes, rank {} for '{}' of {}",
          index, from < 0 ? here : before, name, bytes, from < 0 ? before : here, known.name,
          known.bytes));
  if (from < 0) throw error;
  fabric_.abort(here, std::make_exception_ptr(error));
}

uint64_t UcxArrivals::add(std::shared_ptr<UcxGet> get) {
  gets_[next_get_] = std::move(get);
  return next_get_++;
}

void UcxArrivals::remove(uint64_t get) {
  std::lock_guard lock(fabric_.worker_.mutex());
  gets_.erase(get);
}

void UcxArrivals::arrived(std::span<const std::byte> raw, UcxPayload& payload) {
  std::array<UcxHeader, 2> headers;  // the second one's message has no data
  if (raw.empty() || raw.size() % sizeof(UcxHeader) != 0 || raw.size() > sizeof(headers)) return;
  std::memcpy(headers.data(), raw.data(), raw.size());
  arrived(headers[0], payload);
  UcxPayload none;
  if (raw.size() == sizeof(headers)) arrived(headers[1], none);
}

void UcxArrivals::arrived(const UcxHeader& header, UcxPayload& payload) {
  if (header.generation != static_cast<uint16_t>(fabric_.config_.generation) || header.from < 0 ||
      header.from >= fabric_.config_.processes) {
    return;
  }
  Source& source = sources_[static_cast<size_t>(header.from)];
  switch (header.kind) {
    case UcxHeader::Kind::put:
    case UcxHeader::Kind::signal:
      if (header.sequence == source.next && is_here(header.segment)) {
        take(source, header, payload);
        ++source.next;
        drain(source);
      } else {
        source.early.try_emplace(header.sequence, Message{header, payload.take()});
      }
      return;
    case UcxHeader::Kind::get:
      if (is_here(header.segment)) return answer(header);
      wishes_.push_back(header);
      return;
    case UcxHeader::Kind::reply:
      return reply(header, payload);
    case UcxHeader::Kind::allocation: {
      if (payload.remote() || header.segment > (1u << 24)) return;  // names are short
      const std::string name(reinterpret_cast<const char*>(payload.data()),
                             static_cast<size_t>(payload.bytes()));
      if (known_.size() <= header.segment) known_.resize(header.segment + 1);
      Known& known = known_[header.segment];
      if (known.here) return compare(header.segment, name, header.offset, header.from);
      known.name = name;
      known.bytes = header.offset;
      return;
    }
  }
}

void UcxArrivals::drain(Source& source) {
  for (auto it = source.early.find(source.next);
       it != source.early.end() && is_here(it->second.header.segment);
       it = source.early.find(source.next)) {
    Message message = std::move(it->second);
    source.early.erase(it);
    take(source, message.header, message.payload);
    ++source.next;
  }
}

bool UcxArrivals::fits(const UcxSegment& segment, const UcxHeader& h) const {
  const int64_t bytes = h.kind == UcxHeader::Kind::signal ? int64_t{sizeof(Signal)}
                                                          : (h.rows - 1) * h.stride + h.row_bytes;
  return fabric_.is_here(h.rank) && h.offset >= 0 && bytes >= 0 &&
         h.offset <= segment.bytes() - bytes;
}

void UcxArrivals::take(Source& source, const UcxHeader& header, UcxPayload& payload) {
  if (header.kind == UcxHeader::Kind::put) return put(source, header, payload);
  source.signals.push_back(header);
  deliver_signals(source);
}

void UcxArrivals::deliver_signals(Source& source) {
  while (!source.signals.empty()) {
    const UcxHeader header = source.signals.front();
    if (!source.receiving.empty() && *source.receiving.begin() < header.sequence) return;
    source.signals.pop_front();
    const std::shared_ptr<UcxSegment> segment = known_[header.segment].segment.lock();
    if (!segment || !fits(*segment, header)) continue;
    deliver(*reinterpret_cast<Signal*>(segment->part(header.rank) + header.offset), header.op,
            header.value, fabric_.doorbell(header.rank));
  }
}

void UcxArrivals::put(Source& source, const UcxHeader& h, UcxPayload& payload) {
  const std::shared_ptr<UcxSegment> segment = known_[h.segment].segment.lock();
  if (!segment || !fits(*segment, h) || payload.bytes() != h.row_bytes * h.rows) return;
  std::byte* const dst = segment->part(h.rank) + h.offset;
  if (!payload.remote()) {
    copy_rows(dst, h.stride, payload.data(), h.row_bytes, h.row_bytes, h.rows);
    return;
  }
  source.receiving.insert(h.sequence);
  const bool packed = h.rows == 1 || h.stride == h.row_bytes;
  auto between =
      std::make_shared<std::vector<std::byte>>(packed ? 0 : static_cast<size_t>(payload.bytes()));
  payload.receive(packed ? dst : between->data(),
                  [this, &source, h, segment, between, dst](bool ok) {
                    if (!ok) return;  // the connection broke: its signals must not be seen
                    if (!between->empty()) {
                      copy_rows(dst, h.stride, between->data(), h.row_bytes, h.row_bytes, h.rows);
                    }
                    source.receiving.erase(h.sequence);
                    deliver_signals(source);
                  });
}

void UcxArrivals::answer(const UcxHeader& wish) {
  const std::shared_ptr<UcxSegment> segment = known_[wish.segment].segment.lock();
  UcxHeader header = wish;
  header.kind = UcxHeader::Kind::reply;
  header.from = fabric_.config_.process;
  if (!segment || !fits(*segment, wish)) {  // no data: who asks fails
    return fabric_.worker_.send_copy(wish.from, kFabricMessages,
                                     std::as_bytes(std::span(&header, 1)), {});
  }
  const std::byte* const src = segment->part(wish.rank) + wish.offset;
  const auto send = std::make_shared<UcxSend>();
  std::span<const std::byte> data(src, static_cast<size_t>(wish.row_bytes * wish.rows));
  if (wish.rows == 1 || wish.stride == wish.row_bytes) {
    send->keep = segment;
  } else {
    send->packed.resize(data.size());
    copy_rows(send->packed.data(), wish.row_bytes, src, wish.stride, wish.row_bytes, wish.rows);
    data = send->packed;
  }
  fabric_.worker_.send(wish.from, kFabricMessages, std::as_bytes(std::span(&header, 1)), data,
                       send);
}

void UcxArrivals::reply(const UcxHeader& header, UcxPayload& payload) {
  const auto it = gets_.find(header.value);
  if (it == gets_.end()) return;  // nobody waits any more
  const std::shared_ptr<UcxGet> get = std::move(it->second);
  gets_.erase(it);
  const Block& block = get->block;
  const auto finish = [this, get](bool ok) {
    get->receiving = false;
    if (!ok) get->failed = true;
    get->complete = true;
    fabric_.doorbell(get->rank).ring();
  };
  if (payload.bytes() != block.bytes()) {
    get->gone = true;
    return finish(true);
  }
  if (!payload.remote()) {
    copy_rows(get->dst, block.dst_stride, payload.data(), block.row_bytes, block.row_bytes,
              block.rows);
    return finish(true);
  }
  get->receiving = true;
  if (block.rows == 1 || block.dst_stride == block.row_bytes) {
    return payload.receive(get->dst, finish);
  }
  auto between = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(payload.bytes()));
  payload.receive(between->data(), [get, between, finish](bool ok) {
    const Block& b = get->block;
    if (ok) copy_rows(get->dst, b.dst_stride, between->data(), b.row_bytes, b.row_bytes, b.rows);
    finish(ok);
  });
}

}  // namespace braid::fabric
