#include "braid/kernels/cuda/transfer_pieces.h"

namespace braid::cuda {

TransferPieces::TransferPieces(const OpCall& call, fabric::DeviceEndpoint& endpoint, bool put,
                               bool whole_batch)
    : call_(call),
      endpoint_(endpoint),
      put_(put),
      whole_(whole_batch),
      tag_(endpoint.tag(put ? "push" : "pull")) {}

void TransferPieces::append(int peer, std::vector<fabric::LinkProxy::Piece>& pieces) const {
  for (const ops::Move& move : moves()) {
    if (move.peer != peer) continue;
    const TensorView& src = call_.in[move.src];
    for (int64_t b = 0; b < sequences_of(call_, src, whole_); ++b) {
      pieces.push_back(piece_of(move, b));
    }
  }
}

int TransferPieces::num() const {
  int64_t pieces = 0;
  for (const ops::Move& move : moves()) {
    pieces += sequences_of(call_, call_.in[move.src], whole_);
  }
  return static_cast<int>(pieces);
}

void TransferPieces::count() const {
  for (const ops::Move& move : moves()) {
    const TensorView& src = call_.in[move.src];
    const int64_t elems = move.elems(src.shape[3]) * sequences_of(call_, src, whole_);
    endpoint_.traffic().add(tag_, put_ ? fabric::Verb::put : fabric::Verb::get,
                            endpoint_.link(endpoint_.rank(), move.peer),
                            bytes_of(src.dtype, elems));
  }
}

fabric::LinkProxy::Piece TransferPieces::piece_of(const ops::Move& move, int64_t b) const {
  const TensorView& src = call_.in[move.src];
  const TensorView& dst = call_.in[move.dst];
  const int64_t element = bytes_of(src.dtype, 1);
  const Strides s = strides_of(src), d = strides_of(dst);
  fabric::LinkProxy::Piece piece{
      .dst = at(dst, move.dst_row, move.dst_head) + b * d.batch * element,
      .src = at(src, move.src_row, move.src_head) + b * s.batch * element,
      .block = {.row_bytes = move.heads * src.shape[3] * element,
                .rows = move.rows,
                .dst_stride = d.token * element,
                .src_stride = s.token * element}};
  if (piece.block.packed()) piece.block = {.row_bytes = piece.block.bytes()};
  // The peer's side lies at the offset of this rank's own copy.
  std::byte* const local = put_ ? piece.dst : const_cast<std::byte*>(piece.src);
  const auto place = endpoint_.place(local);
  BRAID_CHECK(place, "{}: the arena is no symmetric memory", call_.op->def->kind);
  std::byte* const remote = endpoint_.transfer_end(*place, move.peer);
  put_ ? piece.dst = remote : piece.src = remote;
  return piece;
}

}  // namespace braid::cuda
