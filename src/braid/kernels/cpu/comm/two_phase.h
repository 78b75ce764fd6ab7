#pragma once

#include <cstdint>

namespace braid::cpu {

// The order of a reduction by pieces over an Exchange (fabric/comm.h), the same on all ranks. Of
// each piece, every rank sends the others their shares (scatter) and, when it has summed its own,
// that sum (gather): rounds s0 s1 g0 s2 g1 s3 g2 ... While piece k is made, the scatter of k - 1
// and the gather of k - 2 are on the wire. Round e is sent only after round e - 2 was taken, as the
// Exchange asks.
//
// make(k) makes a piece; send_scatter(k), take_scatter(k), send_gather(k), take_gather(k) move it.
template <class Make, class SendScatter, class TakeScatter, class SendGather, class TakeGather>
void reduce_in_pieces(int64_t pieces, Make&& make, SendScatter&& send_scatter,
                      TakeScatter&& take_scatter, SendGather&& send_gather,
                      TakeGather&& take_gather) {
  for (int64_t k = 0; k < pieces; ++k) {
    make(k);
    if (k == 1) send_scatter(1);  // nothing has to be taken before the second round
    if (k >= 1) take_scatter(k - 1);
    if (k != 1) send_scatter(k);
    if (k >= 2) take_gather(k - 2);
    if (k >= 1) send_gather(k - 1);
  }
  if (pieces == 0) return;
  take_scatter(pieces - 1);
  if (pieces >= 2) take_gather(pieces - 2);
  send_gather(pieces - 1);
  take_gather(pieces - 1);
}

}  // namespace braid::cpu
