#ifndef DAEMON_ABI_MESSAGES_H_
#define DAEMON_ABI_MESSAGES_H_

// Messages between shim (or fsctl) and fineserved: one datagram each on an
// AF_UNIX SOCK_SEQPACKET socket, host byte order, fixed size per type. The
// client asks, the daemon answers each request with exactly one message that
// carries the request's sequence; the daemon never speaks first. A Notice is
// not answered: what follows from it shows in the slab table.
//
//   client                            daemon
//   Hello                        →
//                                ←    Welcome + [table, scoreboard]  | Refused
//   RuleRequest                  →                    } once per rule that
//                                ←    RuleAnswer      } Welcome announced
//   LeaseRequest                 →
//                                ←    LeaseGrant               | Refused
//   GranuleRequest               →                    } once per batch: at most
//                                ←    GranuleBatch + [descriptors]  } one in
//   ...                                                flight, client-paced
//   ReturnRequest                →
//                                ←    ReturnDone               | Refused
//
// An engine whose blocks we can see has a view of the pool instead of leases
// of whole slabs (design note 0000, Memory):
//
//   ViewRequest                  →
//                                ←    ViewAnswer + [view scoreboard] | Refused
//   (the engine allocates, fills and warms up on private scratch)
//   PoolGranuleRequest           →                    } the pool's granules,
//                                ←    GranuleBatch + [descriptors]  } as above
//   ActivateRequest              →
//                                ←    ActivateDone             | Refused
//   WantNotice, ReturnNotice   →    the slab table says who holds what
//   ...
//   CloseViewRequest             →
//                                ←    CloseViewDone            | Refused
//
// The kernel stamps every message with its sender's credentials (SO_PASSCRED);
// a message whose pid is not the member's is dropped and counted. So a forked
// child that kept the socket cannot act for its parent.
//
// MessageHeader is the same in every version for ever: it lets two versions
// refuse each other by name.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "daemon/abi/rule.h"
#include "daemon/abi/slab_table.h"
#include "daemon/abi/version.h"

namespace fineserve::abi {

inline constexpr uint32_t kMessageMagic = 0x31565346;  // "FSV1"
inline constexpr size_t kMaxMessageBytes = 1024;
// Linux refuses more descriptors in one SCM_RIGHTS message (SCM_MAX_FD).
inline constexpr uint32_t kMaxDescriptorsPerMessage = 253;
inline constexpr uint32_t kDeclaredSizeCapacity = 32;

enum class MessageType : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,
  kLeaseRequest = 4,
  kLeaseGrant = 5,
  kGranuleRequest = 6,
  kGranuleBatch = 7,
  kReturnRequest = 8,
  kReturnDone = 9,
  kRuleRequest = 10,
  kRuleAnswer = 11,
  kViewRequest = 12,
  kViewAnswer = 13,
  kPoolGranuleRequest = 14,
  kActivateRequest = 15,
  kActivateDone = 16,
  kWantNotice = 17,
  kReturnNotice = 18,
  kCloseViewRequest = 19,
  kCloseViewDone = 20,
};

enum class RefusalCode : uint32_t {
  kVersion = 1,        // the daemon speaks another abi_version
  kNotPermitted = 2,   // another user, or another pid namespace
  kWrongGpu = 3,       // this daemon serves another GPU
  kCapacity = 4,       // engine or member table full
  kPoolExhausted = 5,  // not enough free slabs now
  kUnknownLease = 6,   // not a lease of this engine
  kMalformed = 7,
  kShuttingDown = 8,
  kDriver = 9,   // a driver call failed in the daemon
  kFormat = 10,  // the pool's slabs do not hold blocks of this format
  kView = 11,    // no view, another one already, or not in this state
};

enum class Role : uint32_t {
  kMember = 1,    // a process that maps KV: gets a scoreboard and leases
  kObserver = 2,  // fsctl: gets the table only
};

struct MessageHeader {
  uint32_t magic;
  uint16_t abi_version;
  MessageType type;
  uint32_t bytes;     // of the whole message
  uint32_t sequence;  // the answer repeats its request's
};
static_assert(sizeof(MessageHeader) == 16);

// Asks to join. A member names the engine that it belongs to: members with the
// same name and user form one engine. Descriptors of the answer: the table,
// and for a member its scoreboard.
struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  MessageHeader header;
  Role role;
  uint32_t pid;  // as the client sees itself; must be the kernel's for us
  uint8_t gpu_uuid[16];  // all zero: whichever GPU you serve
  char engine_name[kNameBytes];
  char program[kNameBytes];
};
static_assert(sizeof(Hello) == 168);

struct Welcome {
  static constexpr MessageType kType = MessageType::kWelcome;
  MessageHeader header;
  uint64_t epoch;
  uint32_t engine_id;  // 0 for an observer
  uint32_t daemon_pid;
  uint64_t granule_bytes;
  uint32_t granules_per_slab;
  uint32_t slab_count;
  uint32_t declared_size_count;  // ≤ kDeclaredSizeCapacity
  uint32_t rule_count;           // ≤ kRuleCapacity; asked for one by one
  uint64_t declared_sizes[kDeclaredSizeCapacity];  // bytes of one allocation
};
static_assert(sizeof(Welcome) == 312);

// Asks for one of the rules that Welcome announced. They stay as they were
// then for as long as the connection lasts.
struct RuleRequest {
  static constexpr MessageType kType = MessageType::kRuleRequest;
  MessageHeader header;
  uint32_t index;  // < Welcome's rule_count, else Refused
  uint32_t reserved;
};
static_assert(sizeof(RuleRequest) == 24);

struct RuleAnswer {
  static constexpr MessageType kType = MessageType::kRuleAnswer;
  MessageHeader header;
  uint32_t index;
  uint32_t reserved;
  Rule rule;
};
static_assert(sizeof(RuleAnswer) == 912);

struct Refused {
  static constexpr MessageType kType = MessageType::kRefused;
  MessageHeader header;
  RefusalCode code;
  uint32_t daemon_abi_version;
  char text[240];  // one line for the user, NUL-terminated
};
static_assert(sizeof(Refused) == 264);

// Asks for whole slabs, zeroed. Granted once their zero fill has completed;
// the answer may therefore take as long as zeroing them.
struct LeaseRequest {
  static constexpr MessageType kType = MessageType::kLeaseRequest;
  MessageHeader header;
  uint32_t slab_count;  // ≥ 1
  uint32_t reserved;
  uint64_t bytes;  // of the allocation behind it, for the log
};
static_assert(sizeof(LeaseRequest) == 32);

struct LeaseGrant {
  static constexpr MessageType kType = MessageType::kLeaseGrant;
  MessageHeader header;
  uint32_t lease;  // never 0, never reused within an epoch
  uint32_t slab_count;
};
static_assert(sizeof(LeaseGrant) == 24);

// Asks for descriptors of a lease's granules [first, first + max_count), in
// the order in which they are to be mapped: slab by slab.
struct GranuleRequest {
  static constexpr MessageType kType = MessageType::kGranuleRequest;
  MessageHeader header;
  uint32_t lease;
  uint32_t first;
  uint32_t max_count;  // 1 … kMaxDescriptorsPerMessage
  uint32_t reserved;
};
static_assert(sizeof(GranuleRequest) == 32);

// Carries `count` descriptors, fewer than asked for if the daemon was short of
// them (at least 1). A client that got MSG_CTRUNC closes what came and asks
// again for fewer.
struct GranuleBatch {
  static constexpr MessageType kType = MessageType::kGranuleBatch;
  MessageHeader header;
  uint32_t lease;
  uint32_t first;
  uint32_t count;
  uint32_t reserved;
};
static_assert(sizeof(GranuleBatch) == 32);

// Gives a lease back. The client has unmapped it in a synchronised context:
// nothing of its own can touch it any more.
struct ReturnRequest {
  static constexpr MessageType kType = MessageType::kReturnRequest;
  MessageHeader header;
  uint32_t lease;
  uint32_t reserved;
};
static_assert(sizeof(ReturnRequest) == 24);

struct ReturnDone {
  static constexpr MessageType kType = MessageType::kReturnDone;
  MessageHeader header;
  uint32_t lease;
  uint32_t reserved;
};
static_assert(sizeof(ReturnDone) == 24);

// Asks for a view of the pool. One per engine; the asking process is the one
// that hands out blocks.
struct ViewRequest {
  static constexpr MessageType kType = MessageType::kViewRequest;
  MessageHeader header;
  ViewMode mode;
  uint32_t planes;
  uint64_t page_bytes;
  uint32_t block_tokens;
  uint32_t reserved;
  // Blocks of the longest request that the engine must be able to finish: the
  // floor is at least so many (0: one block).
  uint64_t floor_blocks;
  uint64_t cap_blocks;  // it will never use more; 0: no limit
};
static_assert(sizeof(ViewRequest) == 56);

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

// Asks for descriptors of the pool's granules [first, first + max_count);
// those of slab s begin at s × granules_per_slab. In mode kView an engine may
// ask for any that exist, otherwise only for those of slabs that it holds. The
// answer is a GranuleBatch of lease 0; it ends before the first granule that
// may not be had (Refused, kUnknownLease, if that is the first).
struct PoolGranuleRequest {
  static constexpr MessageType kType = MessageType::kPoolGranuleRequest;
  MessageHeader header;
  uint32_t first;
  uint32_t max_count;  // 1 … kMaxDescriptorsPerMessage
};
static_assert(sizeof(PoolGranuleRequest) == 24);

// From now on slabs may be leased to the view. With this message the engine
// vouches that it hands out no block but those of leased slabs.
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

// How many slabs the engine could use now, those it has included.
struct WantNotice {
  static constexpr MessageType kType = MessageType::kWantNotice;
  MessageHeader header;
  uint32_t wanted;
  uint32_t reserved;
};
static_assert(sizeof(WantNotice) == 24);

inline constexpr uint32_t kReturnNoticeCapacity = 64;

// Ends leases of a view's slabs: no block of theirs is in use and no step in
// flight may still write one. An entry that names another lease than the slab
// table does is ignored and counted.
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

// Ends the view and all its leases. The client has unmapped the pool in a
// synchronised context.
struct CloseViewRequest {
  static constexpr MessageType kType = MessageType::kCloseViewRequest;
  MessageHeader header;
};
static_assert(sizeof(CloseViewRequest) == 16);

struct CloseViewDone {
  static constexpr MessageType kType = MessageType::kCloseViewDone;
  MessageHeader header;
};
static_assert(sizeof(CloseViewDone) == 16);

// A message of type M with its header filled in and everything else zero.
template <typename M>
M MakeMessage(uint32_t sequence) {
  static_assert(std::is_trivially_copyable_v<M> &&
                sizeof(M) <= kMaxMessageBytes);
  M message{};
  message.header = {kMessageMagic, kAbiVersion, M::kType, sizeof(M), sequence};
  return message;
}

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_MESSAGES_H_
