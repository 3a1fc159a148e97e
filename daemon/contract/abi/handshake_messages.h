#ifndef DAEMON_CONTRACT_ABI_HANDSHAKE_MESSAGES_H_
#define DAEMON_CONTRACT_ABI_HANDSHAKE_MESSAGES_H_

// Messages by which a process joins a daemon, and by which a daemon refuses.
// Order of messages: messages.h.

#include <cstdint>

#include "daemon/contract/abi/message_header.h"
#include "daemon/contract/abi/rule.h"
#include "daemon/contract/abi/slab_table.h"

namespace fineserve::abi {

inline constexpr uint32_t kDeclaredSizeCapacity = 32;

enum class RefusalCode : uint32_t {
  kVersion = 1,        // the daemon has another abi_version
  kNotPermitted = 2,   // another user, or another pid namespace
  kWrongGpu = 3,       // this daemon serves another GPU
  kCapacity = 4,       // engine or member table full
  kPoolExhausted = 5,  // not enough free slabs now
  kUnknownLease = 6,   // not a lease of this engine
  kMalformed = 7,
  kDriver = 9,   // a driver call failed in the daemon
  kFormat = 10,  // the pool's slabs do not hold blocks of this format
  kView = 11,    // no view, a second view, or a view in the wrong state
  kLimit = 12,   // no such engine, or below its floor
  kRoom = 13,    // the pool's size is fixed
  kMove = 14,    // the engine's memory cannot move
  // The engine spans several GPUs, and another GPU's daemon moves it.
  kElsewhere = 15,
};

enum class Role : uint32_t {
  kMember = 1,  // a process that maps KV: gets a scoreboard and leases
  // Gets only the table: fsctl, or a process before it creates a context. It is
  // answered once the pool no longer waits for a former program with the same
  // pid (exec).
  kObserver = 2,
  // A member's second connection, on which it waits for orders. Gets the table
  // only.
  kMover = 3,
  // The mover of a process whose memory is on another GPU, connected to the
  // daemon of its engine's first rank. The process need not be a member there,
  // but that daemon must already have the engine.
  kFollower = 4,
};

// Asks to join. A member names the engine that it belongs to: members with the
// same name and user form one engine. The answer carries the table's descriptor
// and, for a member, its scoreboard's.
struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  MessageHeader header;
  Role role;
  uint32_t pid;          // as the client sees itself; must be the kernel's pid
  uint8_t gpu_uuid[16];  // all zero: any GPU
  char engine_name[kNameBytes];
};
static_assert(sizeof(Hello) == 104);

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

// Asks for one of the rules that Welcome announced. The rules do not change
// during the connection.
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

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_HANDSHAKE_MESSAGES_H_
