#ifndef DAEMON_FINESERVED_STORE_TRANSFER_H_
#define DAEMON_FINESERVED_STORE_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/fineserved/store/contents.h"
#include "kernels/driver/cuda_types.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::store {

// An allocation that a process hands over: a descriptor of its memory on the
// GPU, whose size is a multiple of the device's granularity.
struct Handed {
  uint32_t number = 0;
  uint64_t bytes = 0;
  driver::Descriptor memory;
};

// A copy in a store's file, and the memory of the same size to which it is
// copied.
struct Transfer {
  std::shared_ptr<const driver::Descriptor> file;  // without locks
  uint64_t file_offset = 0;
  Handed memory;
};

// A part of a transfer, on its way to this GPU.
struct Piece {
  HolderId holder = {};
  const char* from = nullptr;  // as mapped here
  driver::CUdeviceptr to = 0;  // likewise
  uint64_t bytes = 0;
  // Set for pieces that other GPUs' links may copy; null if only this GPU's
  // link may.
  std::shared_ptr<const Transfer> whole = nullptr;
  uint64_t offset = 0;  // in it
};

// A way from the host to this GPU.
class Link {
 public:
  enum class Answer {
    kCarried,
    kRefused,  // nothing is written to the memory
    kNever,    // the same, and others will be refused, too
    kLost,     // it may still be written to: it is not to be used
  };

  virtual ~Link() = default;
  // Begins to copy a piece. False if it cannot: nothing was begun.
  virtual bool Carry(const Piece& piece) = 0;
  // Returns the answer for the oldest unanswered piece, without waiting for it;
  // nullopt if there is none yet.
  virtual std::optional<Answer> Take() = 0;
  // Readable when there may be an answer; -1 if the caller must poll with Take.
  virtual int descriptor() const = 0;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_TRANSFER_H_
