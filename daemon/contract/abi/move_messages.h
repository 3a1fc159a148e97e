#ifndef DAEMON_CONTRACT_ABI_MOVE_MESSAGES_H_
#define DAEMON_CONTRACT_ABI_MOVE_MESSAGES_H_

// Messages by which an engine's resident memory (what is not KV: weights,
// workspaces, graph pools) leaves the GPU and comes back (design note 0039).
// Order of messages: messages.h.

#include <cstdint>

#include "daemon/contract/abi/message_header.h"
#include "daemon/contract/abi/share_messages.h"

namespace fineserve::abi {

enum class Place : uint32_t {
  kGpu = 1,
  kHost = 2,  // in the daemon's store; the gate is closed
  // On the GPU, but the gate is closed, the contexts' work has ended, and
  // memory of other processes that it has open may be missing. A state between
  // the other two, for an engine of several processes.
  kAtRest = 3,
  // On the GPU and working, but some or all parameters are dropped: it reads
  // another process's copy (design note 0048).
  kDropped = 4,
};

// The role of a process in its engine's moves. For an engine on several GPUs,
// each GPU's daemon keeps the memory there, but one of them, the first rank's,
// gives all orders.
enum class Seat : uint32_t {
  kWhole = 0,  // this daemon orders, and keeps what leaves
  kLed = 1,    // this daemon keeps what leaves; another one orders
  kRank = 2,   // this daemon orders; another GPU's keeps what leaves
  kPool = 3,   // it has no memory, but runs the block pool of all ranks
};

// Why a mover may report without the result of an order.
enum class Need : uint32_t {
  kNone = 0,
  kReturn = 1,  // its memory is on the host, and calls wait for it
  kRoom = 2,    // others need the room that it has on its GPU: of Seat::kRank
  kSizes = 3,   // none: how much it has has changed, where it is has not
};

// Reports where the process's resident memory is, and waits for an order
// without a time limit. The first report of a connection carries the process's
// holdings in the store, if any: descriptors of the inventory (inventory.h) and
// of its files. While it waits, a process may send the report again to state a
// need.
struct MoveReport {
  static constexpr MessageType kType = MessageType::kMoveReport;
  MessageHeader header;
  Place place;
  uint32_t order;  // whose result this is; 0: none
  // 1: the order moved nothing, for the reason in `why`. Without an order, from
  // Seat::kLed: no daemon gives it orders at present.
  uint32_t failed;
  uint32_t allocations;  // of Seat::kPool: its ranks
  Need need;
  uint32_t lacks_room;    // 1: it failed because the GPU has no room
  uint64_t moving_bytes;  // on the GPU, and can move
  uint64_t pinned_bytes;  // on the GPU, and stay: they were exported
  uint64_t out_bytes;     // in the store; at kDropped: that it has dropped
  char why[144];          // NUL-terminated
  uint32_t lender_pid;    // at kDropped: whose memory it reads
  uint32_t frozen_mib;    // parameters that may be dropped, or are
  Seat seat;              // kWhole in an older process
  uint32_t can_rest;      // 1: takes orders to kAtRest; 0: an older process
};
static_assert(sizeof(MoveReport) == 224);

// The process carries out the order, then reports. From a daemon that may not
// order it (Seat::kLed), kGpu means that requests wait for the engine; kHost
// means that others need its room there, so it should leave, or stay away for a
// while.
struct MoveOrder {
  static constexpr MessageType kType = MessageType::kMoveOrder;
  MessageHeader header;
  uint32_t order;  // never 0
  Place to;
};
static_assert(sizeof(MoveOrder) == 24);

// The process drops parameters in favour of the lender's until `bytes` are
// dropped in all: whole allocations, which the lender has and this process does
// not itself lend. Then it reports Place::kDropped, or its former place. An
// order to kGpu restores them all.
struct DropOrder {
  static constexpr MessageType kType = MessageType::kDropOrder;
  MessageHeader header;
  uint32_t order;  // never 0
  uint32_t reserved;
  ShareAddress lender;
  uint64_t bytes;
};
static_assert(sizeof(DropOrder) == 56);

// Allocations of a process, with a descriptor of each one's memory.
inline constexpr uint32_t kContentsPerMessage = 60;
// Limit on the allocations of a process that can leave the GPU.
inline constexpr uint32_t kMostAllocations = 4096;
template <MessageType type>
struct HandedMemory {
  static constexpr MessageType kType = type;
  MessageHeader header;
  uint32_t order;    // never 0
  uint32_t is_last;  // 1: these are the last
  uint32_t count;    // 0 … kContentsPerMessage
  uint32_t total;    // handed over with this order so far, these included
  struct {
    uint32_t number;  // the process's own
    uint32_t reserved;
    uint64_t bytes;
  } entries[kContentsPerMessage];
};

// Hands over allocations that will leave the GPU. The process writes none of
// them before the answer, which is sent once all have been handed over and
// copied. An older process sends a `total` of 0.
using MoveContents = HandedMemory<MessageType::kMoveContents>;
static_assert(sizeof(MoveContents) == 992);

// The store has all of the allocations or none. If it has them, the message
// carries descriptors of the inventory and of its files.
struct MoveCopied {
  static constexpr MessageType kType = MessageType::kMoveCopied;
  MessageHeader header;
  uint32_t order;
  uint32_t failed;        // 1: for the reason in `why`
  uint64_t copied_bytes;  // the others were there already
  char why[160];          // NUL-terminated
};
static_assert(sizeof(MoveCopied) == 192);

// Hands over new memory for the contents of allocations in the store. The
// daemon writes to none of it after its answer, which is sent once all has been
// handed over. If the daemon does not answer, the process must not use this
// memory, since a copy into it may still be under way. A process that gives up
// also sends a last message, and the daemon then releases the memory. (An older
// daemon ends the connection.)
using MoveFill = HandedMemory<MessageType::kMoveFill>;

enum class FillResult : uint32_t {
  kFilled = 0,
  kFailed = 1,  // the process may copy from the store's files itself
  kLost = 2,    // the store's bytes are no longer those that left
};

struct MoveFilled {
  static constexpr MessageType kType = MessageType::kMoveFilled;
  MessageHeader header;
  uint32_t order;
  FillResult result;
  char why[160];  // NUL-terminated
};
static_assert(sizeof(MoveFilled) == 184);

// Hands over pairs of allocations of equal size for comparison: first the
// process's own, then another process's. Neither is written before the answer,
// which is sent once all have been handed over.
using MoveCompare = HandedMemory<MessageType::kMoveCompare>;

struct MoveCompared {
  static constexpr MessageType kType = MessageType::kMoveCompared;
  MessageHeader header;
  uint32_t order;
  uint32_t differ;  // 1: not all pairs are equal, for the reason in `why`
  char why[160];    // NUL-terminated
};
static_assert(sizeof(MoveCompared) == 184);

// An observer's request: moves the memory of all processes of an engine, or of
// none of them. The answer is sent after the move.
struct MoveRequest {
  static constexpr MessageType kType = MessageType::kMoveRequest;
  MessageHeader header;
  uint32_t engine_id;
  Place to;
};
static_assert(sizeof(MoveRequest) == 24);

// An observer's request: makes an engine of one process drop parameters as by a
// DropOrder. The answer is a MoveDone, as for a MoveRequest to kDropped; a
// MoveRequest to kGpu restores them.
struct DropRequest {
  static constexpr MessageType kType = MessageType::kDropRequest;
  MessageHeader header;
  uint32_t engine_id;
  uint32_t reserved;
  ShareAddress lender;
  uint64_t bytes;
};
static_assert(sizeof(DropRequest) == 56);

struct MoveDone {
  static constexpr MessageType kType = MessageType::kMoveDone;
  MessageHeader header;
  uint32_t engine_id;
  Place place;
  uint32_t processes;
  uint32_t moved;  // 0: all were there already
  uint64_t bytes;  // of resident memory that moves; at kDropped: dropped ones
  uint64_t pinned_bytes;
};
static_assert(sizeof(MoveDone) == 48);

// An observer's request for the figures of the daemon's store.
struct StoreRequest {
  static constexpr MessageType kType = MessageType::kStoreRequest;
  MessageHeader header;
};

struct StoreAnswer {
  static constexpr MessageType kType = MessageType::kStoreAnswer;
  MessageHeader header;
  uint64_t held_bytes;      // of copies
  uint64_t spare_bytes;     // of these, whose engines are on the GPU
  uint64_t unshared_bytes;  // that engines which are out would take unshared
  uint64_t limit_bytes;     // that it may hold
  uint64_t copied_bytes;    // since the daemon's start
  uint64_t found_bytes;     // that did not have to be copied
  uint64_t copies;
};
static_assert(sizeof(StoreAnswer) == 72);

// A request from another daemon, connected as an observer, for the copies in
// this daemon's store whose engines have left the GPU
// (daemon/fineserved/store). The answer may be out of date at once: a copy
// exists as long as its bytes can be locked.
struct OfferRequest {
  static constexpr MessageType kType = MessageType::kOfferRequest;
  MessageHeader header;
};

// Carries descriptors of an inventory and of its files; none if there are no
// copies.
struct OfferAnswer {
  static constexpr MessageType kType = MessageType::kOfferAnswer;
  MessageHeader header;
  // Bytes of this daemon's evicted engines that other daemons' stores hold.
  uint64_t others_bytes;
};
static_assert(sizeof(OfferAnswer) == 24);

// Sent by another daemon, which connects as an observer. Asks this daemon to
// copy part of a copy in the sender's store to memory of the sender's GPU, over
// this GPU's own link to the host. Carries descriptors of the store's file and
// of that memory. Its sequence is unique among those of the sending process.
// Refused if this GPU is busy with its own work, or for good (kWrongGpu) if no
// link connects the two GPUs: nothing is written then. Without an answer the
// memory must not be used, since it may still be written to.
struct CarryRequest {
  static constexpr MessageType kType = MessageType::kCarryRequest;
  MessageHeader header;
  uint64_t file_offset;   // of the copy
  uint64_t memory_bytes;  // of the copy, and of the memory
  uint64_t offset;        // in both
  uint64_t bytes;
};
static_assert(sizeof(CarryRequest) == 48);

struct CarryDone {
  static constexpr MessageType kType = MessageType::kCarryDone;
  MessageHeader header;
};

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_MOVE_MESSAGES_H_
