#ifndef DAEMON_CONTRACT_ABI_SHARE_MESSAGES_H_
#define DAEMON_CONTRACT_ABI_SHARE_MESSAGES_H_

// Memory that one process under the preload opens by a handle of another one
// (CUDA's legacy IPC, design note 0039). The one that made the handle listens;
// the other connects to it for each request:
//
//   opener                       exporter
//   OpenRequest                  →
//                                ←    OpenAnswer [+ memory]
//
//   CloseRequest                 →
//                                ←    CloseDone
//
// Before the two of them leave the GPU as processes of one engine:
//
//   RestRequest                  →
//                                ←    RestAnswer
//
// and after they have come back, before the opener computes: OpenRequest.
//
// A process that drops its own copy of parameters (design note 0048) asks for
// another one's in the same way, repeatedly until it has all, and gives them
// back:
//
//   reader                       lender
//   ReadRequest                  →
//                                ←    ReadAnswer [+ memory]
//   EndReadRequest               →
//                                ←    EndReadDone
//
// The lender asks the reader to restore its own, before it writes or moves
// them:
//
//   RecallRequest                ←
//                                →    RecallDone
//
// By the kernel's credentials, both check that the other runs as their user,
// and the opener also that it is the process which the handle names. An opener
// that gets no answer sends a CloseRequest, which will be read after the
// request.

#include <cstdint>

#include "daemon/contract/abi/message_header.h"
#include "daemon/contract/abi/slab_table.h"

namespace fineserve::abi {

// A process with the preloaded shim that answers other processes, and where it
// listens.
struct ShareAddress {
  uint64_t image;  // its ProcessImage
  uint32_t pid;
  uint32_t reserved;
  char socket[8];  // its name in the abstract namespace, NUL-terminated
};
static_assert(sizeof(ShareAddress) == 24);

// The content of a CUipcMemHandle of resident memory.
struct IpcHandle {
  static constexpr uint64_t kMagic = 0x31637069'2d767366;  // "fsv-ipc1"
  uint64_t magic;
  uint64_t image;   // ProcessImage of the exporter
  uint32_t pid;     // its
  uint32_t number;  // the allocation's own, never used twice
  uint64_t bytes;   // as the program asked for them
  char check[16];   // random, the allocation's
  char socket[8];   // its name in the abstract namespace, NUL-terminated
  uint64_t reserved;
};
static_assert(sizeof(IpcHandle) == 64);

// Asks for the memory behind a handle. The memory then stays on the GPU until
// the opener closes it or ends.
struct OpenRequest {
  static constexpr MessageType kType = MessageType::kOpenRequest;
  MessageHeader header;
  IpcHandle handle;
};
static_assert(sizeof(OpenRequest) == 80);

enum class OpenResult : uint32_t {
  kOpen = 0,     // with a descriptor of the memory
  kAway = 1,     // it is on the host, and comes back: ask again
  kUnknown = 2,  // there is no such memory
};

struct OpenAnswer {
  static constexpr MessageType kType = MessageType::kOpenAnswer;
  MessageHeader header;
  OpenResult result;
  uint32_t
      departures;  // how often it left the GPU; it comes back as other memory
  uint64_t bytes;  // the memory's, in whole granules
};
static_assert(sizeof(OpenAnswer) == 32);

// The opener has unmapped it.
struct CloseRequest {
  static constexpr MessageType kType = MessageType::kCloseRequest;
  MessageHeader header;
  IpcHandle handle;
};
static_assert(sizeof(CloseRequest) == 80);

struct CloseDone {
  static constexpr MessageType kType = MessageType::kCloseDone;
  MessageHeader header;
};

// Says that the opener touches none of the memory until it has sent an
// OpenRequest for it again: the opener's gate is closed and its work has ended.
// An opener that gets no answer must assume kRests.
struct RestRequest {
  static constexpr MessageType kType = MessageType::kRestRequest;
  MessageHeader header;
  IpcHandle handle;
  char engine_name[kNameBytes];  // that the opener belongs to
};
static_assert(sizeof(RestRequest) == 144);

enum class RestResult : uint32_t {
  kRests = 0,  // it may leave the GPU, and the opener has to unmap it
  // It stays for the opener, which belongs to another engine, or no longer has
  // the memory.
  kStays = 1,
};

struct RestAnswer {
  static constexpr MessageType kType = MessageType::kRestAnswer;
  MessageHeader header;
  RestResult result;
  uint32_t reserved;
};
static_assert(sizeof(RestAnswer) == 24);

// Limit on the allocations whose memory one answer carries.
inline constexpr uint32_t kLentPerAnswer = 30;

// Asks for allocations that hold only parameters, by their numbers, from 1 on,
// in the order in which the lender has named them. From the answer on, the
// lender keeps the lent ones on the GPU and does not write them, until the
// reader ends or reports that it has its own again.
struct ReadRequest {
  static constexpr MessageType kType = MessageType::kReadRequest;
  MessageHeader header;
  uint32_t count;  // entries of `wanted`
  uint32_t reserved;
  ShareAddress reader;
  uint32_t wanted[kLentPerAnswer];
};
static_assert(sizeof(ReadRequest) == 168);

enum class ReadResult : uint32_t {
  kLent = 0,
  kUnnamed = 1,  // no allocation is known to hold nothing but parameters
  kReads = 2,    // too many processes read them
  kAway = 3,     // they are on the host, or move
};

struct ReadAnswer {
  static constexpr MessageType kType = MessageType::kReadAnswer;
  MessageHeader header;
  ReadResult result;
  uint32_t count;  // entries of `bytes`
  uint32_t total;  // allocations that the lender has named
  uint32_t reserved;
  // 0 for an allocation that is not lent, because the lender has dropped it or
  // is about to. Every other one comes with a descriptor.
  uint64_t bytes[kLentPerAnswer];
};
static_assert(sizeof(ReadAnswer) == 272);

// The reader has unmapped them.
struct EndReadRequest {
  static constexpr MessageType kType = MessageType::kEndReadRequest;
  MessageHeader header;
};

struct EndReadDone {
  static constexpr MessageType kType = MessageType::kEndReadDone;
  MessageHeader header;
};

// The reader will soon restore its own parameters, and reads the lender's until
// then.
struct RecallRequest {
  static constexpr MessageType kType = MessageType::kRecallRequest;
  MessageHeader header;
};

struct RecallDone {
  static constexpr MessageType kType = MessageType::kRecallDone;
  MessageHeader header;
};

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_SHARE_MESSAGES_H_
