#ifndef DAEMON_CONTRACT_ABI_MESSAGES_H_
#define DAEMON_CONTRACT_ABI_MESSAGES_H_

// Messages between shim (or fsctl) and fineserved: one datagram each on an
// AF_UNIX SOCK_SEQPACKET socket, host byte order, fixed size per type. The
// client asks, the daemon answers each request with exactly one message that
// carries the request's sequence; the daemon never sends first. A Notice has
// no answer: what follows from it shows in the slab table.
//
//   client                            daemon
//   Hello                        →
//                                ←    Welcome + [table, scoreboard]  | Refused
//   RuleRequest                  →                    } once for each rule
//                                ←    RuleAnswer      } that Welcome announced
//   LeaseRequest                 →
//                                ←    LeaseGrant               | Refused
//   GranuleRequest               →                    } once per batch; the
//                                ←    GranuleBatch + [descriptors]  } client
//   ...                                               } sets the pace
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
//   WantNotice, ReturnNotice     →    the slab table says what is held
//   ...
// An engine that spans GPUs has a view in each of their pools, registered by
// the process (rank) that computes there. Its block pool runs in one more
// process, which is a member of the engine at each of their daemons:
//
//   RunPoolRequest               →
//                                ←    RunPoolAnswer + [view scoreboard]
//                                                              | Refused
//   WantNotice, ReturnNotice     →    from now on from this process
//   ...
//
// A process whose allocation the driver refused may ask a pool of size "auto"
// for room, again and again until it gets its memory or gives up:
//
//   RoomRequest                  →
//                                ←    RoomAnswer               | Refused
//   ...
//
//   CloseViewRequest             →    (of a suspended view: ViewRequest again)
//                                ←    CloseViewDone            | Refused
//
// An observer may limit what an engine holds (an older daemon refuses this with
// kMalformed):
//
//   LimitRequest                 →
//                                ←    LimitDone                | Refused
//
// An engine whose memory may leave the GPU has a second connection in each of
// its processes, which waits for orders (design note 0039; an older daemon
// takes it for a member and ends it):
//
//   Hello (kMover)               →
//                                ←    Welcome + [table]        | Refused
//   MoveReport [+ what it holds of the store]
//                                →
//   ...                          ←    MoveOrder
//   MoveContents + memory        →    (to the host; as often as it takes)
//   ...                          ←    MoveCopied [+ inventory, files]
//   MoveFill + memory            →    (to the GPU; likewise)
//   ...                          ←    MoveFilled
//   MoveReport                   →
//
// or drops its parameters for those of another process (design note 0048):
//
//   MoveReport                   →
//   ...                          ←    DropOrder
//   MoveCompare + memory         →    (as often as it takes)
//   ...                          ←    MoveCompared
//   MoveReport                   →
//
// One whose memory is on another GPU than its engine's first rank's has one to
// each of these two daemons: the latter's, Hello (kFollower), takes reports and
// gives orders, the former's takes reports and memory.
//
// An observer may have the memory of an engine moved:
//
//   MoveRequest, DropRequest     →
//   ...                          ←    MoveDone                 | Refused
//
// or ask for the store's figures:
//
//   StoreRequest                 →
//                                ←    StoreAnswer              | Refused
//
// or, as another daemon does, for the copies themselves:
//
//   OfferRequest                 →
//                                ←    OfferAnswer [+ inventory, files]
//                                                              | Refused
//
// and may have it copy what comes back to its own GPU:
//
//   CarryRequest + file, memory  →    (several before the first answer)
//   ...                          ←    CarryDone                | Refused
//
// Two processes that share memory by CUDA's legacy IPC speak to each other
// (share_messages.h).
//
// The kernel stamps every message with its sender's credentials (SO_PASSCRED).
// A message whose pid is not the member's is dropped and counted, so a forked
// child that kept the socket cannot act for its parent.

// IWYU pragma: begin_exports
#include "daemon/contract/abi/handshake_messages.h"
#include "daemon/contract/abi/lease_messages.h"
#include "daemon/contract/abi/message_header.h"
#include "daemon/contract/abi/move_messages.h"
#include "daemon/contract/abi/share_messages.h"
#include "daemon/contract/abi/view_messages.h"
// IWYU pragma: end_exports

#endif  // DAEMON_CONTRACT_ABI_MESSAGES_H_
