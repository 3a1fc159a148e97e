#ifndef DAEMON_CONTRACT_ABI_VIEW_MESSAGES_H_
#define DAEMON_CONTRACT_ABI_VIEW_MESSAGES_H_

// The life of an engine's view of the pool. Order of messages: messages.h.

#include <cstdint>

#include "daemon/contract/abi/kv_shape.h"
#include "daemon/contract/abi/message_header.h"
#include "daemon/contract/abi/slab_table.h"

namespace fineserve::abi {

// Bits of ViewRequest::flags. The engine spans GPUs: another process runs its
// block pool (RunPoolRequest). The view gets only slabs that it asks for
// (view_scoreboard.h).
inline constexpr uint32_t kViewOfGroup = 1;
// Other devices know the view's addresses, and continue to use the memory that
// is behind them now: the pool keeps all of its slabs.
inline constexpr uint32_t kViewIsRegistered = 2;

// Asks for a view of the pool. An engine has one view. The asking process is
// the one that hands out blocks, unless kViewOfGroup is set. A process that has
// suspended its view also asks for it again with this message.
struct ViewRequest {
  static constexpr MessageType kType = MessageType::kViewRequest;
  MessageHeader header;
  ViewMode mode;
  uint32_t planes;
  uint64_t page_bytes;
  uint32_t block_tokens;
  uint32_t flags;
  // Blocks of the longest request that the engine must be able to finish, which
  // is also the lowest floor (0: one block).
  uint64_t floor_blocks;
  uint64_t cap_blocks;  // the engine will never use more; 0: no limit
  KvShape shape;
};
static_assert(sizeof(ViewRequest) == 120);

// Descriptor: the view scoreboard (view_scoreboard.h).
struct ViewAnswer {
  static constexpr MessageType kType = MessageType::kViewAnswer;
  MessageHeader header;
  uint64_t plane_bytes;         // C: what a slab gives to each plane
  uint32_t granules_per_plane;  // the rest of a slab's granules is tail waste
  uint32_t slab_count;          // of the pool at its largest
  uint32_t engine_slot;         // its EngineEntry in the slab table
  uint32_t floor_slabs;
  uint32_t cap_slabs;
  uint32_t reserved;
};
static_assert(sizeof(ViewAnswer) == 48);

// Asks for descriptors of the pool's granules [first, first + max_count); those
// of slab s begin at s × granules_per_slab. In mode kView an engine may ask for
// any existing granule, otherwise only for those of slabs that it holds. The
// answer is a GranuleBatch of lease 0. It ends before the first granule that
// this engine may not have. If that is the first requested one, the answer is
// Refused with kUnknownLease.
struct PoolGranuleRequest {
  static constexpr MessageType kType = MessageType::kPoolGranuleRequest;
  MessageHeader header;
  uint32_t first;
  uint32_t max_count;  // 1 … kMaxDescriptorsPerMessage
};
static_assert(sizeof(PoolGranuleRequest) == 24);

// From now on slabs may be leased to the view. With this message the engine
// guarantees that it hands out only blocks of leased slabs.
struct ActivateRequest {
  static constexpr MessageType kType = MessageType::kActivateRequest;
  MessageHeader header;
  uint32_t slabs;  // view indices 1 … slabs exist in its tensors
  uint32_t wanted;
};
static_assert(sizeof(ActivateRequest) == 24);

struct ActivateDone {
  static constexpr MessageType kType = MessageType::kActivateDone;
  MessageHeader header;
};
static_assert(sizeof(ActivateDone) == 16);

// Asks to run the block pool of this engine's view (kViewOfGroup), which
// another member has registered and activated. Only one process at a time runs
// it.
struct RunPoolRequest {
  static constexpr MessageType kType = MessageType::kRunPoolRequest;
  MessageHeader header;
};
static_assert(sizeof(RunPoolRequest) == 16);

// Descriptor: the view scoreboard.
struct RunPoolAnswer {
  static constexpr MessageType kType = MessageType::kRunPoolAnswer;
  MessageHeader header;
  uint64_t plane_bytes;
  uint64_t page_bytes;
  uint32_t engine_slot;  // its EngineEntry in the slab table
  uint32_t slabs;        // view indices 1 … slabs exist in its tensors
  uint32_t floor_slabs;
  uint32_t cap_slabs;
  uint32_t slab_count;  // of the pool at its largest
  uint32_t reserved;
};
static_assert(sizeof(RunPoolAnswer) == 56);

// Number of slabs that the engine could use now, including those it holds.
struct WantNotice {
  static constexpr MessageType kType = MessageType::kWantNotice;
  MessageHeader header;
  uint32_t wanted;
  uint32_t reserved;
};
static_assert(sizeof(WantNotice) == 24);

inline constexpr uint32_t kReturnNoticeCapacity = 64;

// Returns slabs of a view: none of their blocks is in use, and no step in
// flight may still write to one. An entry whose lease differs from the slab
// table's is ignored and counted.
struct ReturnNotice {
  static constexpr MessageType kType = MessageType::kReturnNotice;
  struct Entry {
    uint32_t slab;
    uint32_t lease;
  };
  MessageHeader header;
  uint32_t count;  // ≤ kReturnNoticeCapacity
  uint32_t reserved;
  Entry entries[kReturnNoticeCapacity];
};
static_assert(sizeof(ReturnNotice) == 536);

// Ends the view and all its leases. If `suspended` is 1, it ends the leases and
// the view's claims: the view stays in the slab table until it is registered
// again, so that others see that its engine sleeps. The client has unmapped the
// pool in a synchronised context.
struct CloseViewRequest {
  static constexpr MessageType kType = MessageType::kCloseViewRequest;
  MessageHeader header;
  uint32_t suspended;  // 0 or 1
  uint32_t reserved;
};
static_assert(sizeof(CloseViewRequest) == 24);

struct CloseViewDone {
  static constexpr MessageType kType = MessageType::kCloseViewDone;
  MessageHeader header;
};
static_assert(sizeof(CloseViewDone) == 16);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_VIEW_MESSAGES_H_
