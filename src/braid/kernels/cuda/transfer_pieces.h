#pragma once

#include <vector>

#include "braid/fabric/peer/device_endpoint.h"
#include "braid/kernels/cuda/sequence_views.h"
#include "braid/ops/one_sided.h"

// Blocks of rows that a pull or a push moves, for the ops' bindings.
namespace braid::cuda {

class TransferPieces {
 public:
  // `whole_batch` as of LaunchArgs. The call and the endpoint outlive the pieces.
  TransferPieces(const OpCall& call, fabric::DeviceEndpoint& endpoint, bool put, bool whole_batch);

  // All moves to or from a peer, by the operands' present addresses.
  void append(int peer, std::vector<fabric::LinkProxy::Piece>& pieces) const;
  int num() const;  // of all peers
  // Counts the bytes of all moves as the endpoint's traffic.
  void count() const;

 private:
  const std::vector<ops::Move>& moves() const { return call_.attrs<ops::MoveAttrs>().moves; }
  fabric::LinkProxy::Piece piece_of(const ops::Move& move, int64_t sequence) const;

  const OpCall& call_;
  fabric::DeviceEndpoint& endpoint_;
  const bool put_, whole_;
  const fabric::Tag tag_;
};

}  // namespace braid::cuda
