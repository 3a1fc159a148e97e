// Collectives on streams: which work waits for which, and what happens if a
// rank never joins.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/conformance/collectives.h"
#include "tests/conformance/gate.h"

namespace fineserve::conformance {
namespace {

constexpr size_t kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(int32_t);

#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << #call
#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess) << #call

char* Filled(const Rank& rank, int32_t value) {
  std::vector<char> bytes(kBytes);
  for (size_t at = 0; at < kBytes; at += sizeof(value)) {
    memcpy(&bytes[at], &value, sizeof(value));
  }
  return rank.Upload(bytes);
}

// Returns the value that every element of the buffer has; -1 if they differ.
int32_t ValueIn(const Rank& rank, const char* buffer) {
  const std::vector<char> bytes = rank.Download(buffer, kBytes);
  int32_t first = 0, other = 0;
  memcpy(&first, bytes.data(), sizeof(first));
  for (size_t at = 0; at < kBytes; at += sizeof(other)) {
    memcpy(&other, &bytes[at], sizeof(other));
    if (other != first) return -1;
  }
  return first;
}

ncclResult_t Sum(const Rank& rank, char* buffer, size_t count = kCount) {
  return Nccl().ncclAllReduce(buffer, buffer, count, ncclInt32, ncclSum,
                              rank.comm(), rank.stream());
}

ncclResult_t AsyncError(const Rank& rank) {
  ncclResult_t error = ncclInternalError;
  EXPECT_NCCL(Nccl().ncclCommGetAsyncError(rank.comm(), &error));
  return error;
}

// The test's own alarm bounds it.
ncclResult_t AwaitAsyncError(const Rank& rank) {
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) {
    sched_yield();
    error = AsyncError(rank);
  }
  return error;
}

CONFORMANCE_TEST(CollectivesOnStreams, ACallReturnsBeforeThePeerComes) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        char* const buffer = Filled(rank, 1);
        EXPECT_NCCL(Sum(rank, buffer));
        EXPECT_TRUE(rank.HasWork());
        // Later work on the stream waits too.
        char* const copy = rank.Allocate(kBytes);
        EXPECT_CUDA(Runtime().cudaMemcpyAsync(
            copy, buffer, kBytes, cudaMemcpyDeviceToDevice, rank.stream()));
        EXPECT_TRUE(rank.HasWork());
        peer.channel().Send(0);
        EXPECT_EQ(ValueIn(rank, copy), 3);
        peer.Join();
      },
      [](Rank& rank, Channel& channel) {
        char* const buffer = Filled(rank, 2);
        channel.Receive();
        EXPECT_NCCL(Sum(rank, buffer));
        EXPECT_EQ(ValueIn(rank, buffer), 3);
      });
}

CONFORMANCE_TEST(CollectivesOnStreams, OperandsAreReadInTheStreamsOrder) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        char* const buffer = Filled(rank, 1);
        Gate gate;
        EXPECT_EQ(gate.Block(rank.stream()), CUDA_SUCCESS);
        EXPECT_CUDA(
            Runtime().cudaMemsetAsync(buffer, 0, kBytes, rank.stream()));
        EXPECT_NCCL(Sum(rank, buffer));
        EXPECT_TRUE(rank.HasWork());
        gate.Open();
        EXPECT_EQ(ValueIn(rank, buffer), 2);
        peer.Join();
      },
      [](Rank& rank, Channel&) {
        char* const buffer = Filled(rank, 2);
        EXPECT_NCCL(Sum(rank, buffer));
        EXPECT_EQ(ValueIn(rank, buffer), 2);
      });
}

// If one rank uses two streams and the other rank uses one, calls are still
// matched in the order in which they were made.
CONFORMANCE_TEST(CollectivesOnStreams, CallsOnSeveralStreamsKeepTheirOrder) {
  RunRanks(2, [](Rank& rank) {
    const bool has_two = rank.rank() == 0;
    cudaStream_t other = rank.stream();
    if (has_two) {
      EXPECT_CUDA(Runtime().cudaStreamCreateWithFlags(&other, 1));
    }
    char* const first = Filled(rank, 1);
    char* const second = Filled(rank, 10);
    Gate gate;
    if (has_two) {
      EXPECT_EQ(gate.Block(rank.stream()), CUDA_SUCCESS);
    }
    EXPECT_NCCL(Sum(rank, first));
    EXPECT_NCCL(Nccl().ncclAllReduce(second, second, kCount, ncclInt32, ncclSum,
                                     rank.comm(), other));
    // Heuristic: long enough for a stream that waits for nothing to finish.
    for (int i = 0; has_two && i < 20'000; ++i) {
      ASSERT_EQ(Runtime().cudaStreamQuery(other), cudaErrorNotReady);
      sched_yield();
    }
    gate.Open();
    EXPECT_CUDA(Runtime().cudaStreamSynchronize(other));
    EXPECT_EQ(ValueIn(rank, first), 2);
    EXPECT_EQ(ValueIn(rank, second), 20);
  });
}

CONFORMANCE_TEST(CollectivesOnStreams, ACapturedCollectiveRunsAtEachLaunch) {
  RunRanks(2, [](Rank& rank) {
    char* const buffer = Filled(rank, 1);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_CUDA(Runtime().cudaStreamBeginCapture(rank.stream(),
                                                 cudaStreamCaptureModeGlobal));
    EXPECT_NCCL(Sum(rank, buffer));
    EXPECT_CUDA(Runtime().cudaStreamEndCapture(rank.stream(), &graph));
    EXPECT_EQ(ValueIn(rank, buffer), 1);
    EXPECT_CUDA(Runtime().cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (const int32_t sum : {2, 4, 8}) {
      EXPECT_CUDA(Runtime().cudaGraphLaunch(exec, rank.stream()));
      EXPECT_EQ(ValueIn(rank, buffer), sum);
    }
    EXPECT_NCCL(Sum(rank, buffer));
    EXPECT_EQ(ValueIn(rank, buffer), 16);
  });
}

CONFORMANCE_TEST(Transfers, ASendWaitsForItsReceiver) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        char* const buffer = Filled(rank, 7);
        EXPECT_NCCL(Nccl().ncclSend(buffer, kCount, ncclInt32, 1, rank.comm(),
                                    rank.stream()));
        EXPECT_TRUE(rank.HasWork());
        peer.channel().Send(0);
        rank.Synchronize();
        peer.Join();
      },
      [](Rank& rank, Channel& channel) {
        char* const buffer = Filled(rank, 0);
        channel.Receive();
        EXPECT_NCCL(Nccl().ncclRecv(buffer, kCount, ncclInt32, 0, rank.comm(),
                                    rank.stream()));
        EXPECT_EQ(ValueIn(rank, buffer), 7);
      });
}

// The emulated NCCL's choice; the real one's is its own.
CONFORMANCE_TEST(Transfers, ABufferedSendEndsBeforeItIsReceived) {
  setenv("EMUCUDA_SENDS", "buffered", 1);
  constexpr size_t kTooMany = (size_t{5} << 20) / sizeof(int32_t);
  RunPair(
      [](Rank& rank, Peer& peer) {
        char* const buffer = Filled(rank, 7);
        char* const large = rank.Allocate(kTooMany * sizeof(int32_t));
        for (int time = 0; time < 2; ++time) {
          EXPECT_NCCL(Nccl().ncclSend(buffer, kCount, ncclInt32, 1, rank.comm(),
                                      rank.stream()));
          rank.Synchronize();
        }
        EXPECT_NCCL(Nccl().ncclSend(large, kTooMany, ncclInt32, 1, rank.comm(),
                                    rank.stream()));
        EXPECT_TRUE(rank.HasWork());
        peer.channel().Send(0);
        rank.Synchronize();
        peer.Join();
      },
      [](Rank& rank, Channel& channel) {
        char* const buffer = Filled(rank, 0);
        char* const large = rank.Allocate(kTooMany * sizeof(int32_t));
        channel.Receive();
        for (int time = 0; time < 2; ++time) {
          EXPECT_NCCL(Nccl().ncclRecv(buffer, kCount, ncclInt32, 0, rank.comm(),
                                      rank.stream()));
        }
        EXPECT_EQ(ValueIn(rank, buffer), 7);
        EXPECT_NCCL(Nccl().ncclRecv(large, kTooMany, ncclInt32, 0, rank.comm(),
                                    rank.stream()));
        rank.Synchronize();
      });
}

// The peer takes part in one collective, and is killed before the next.
void KillInTheMiddle(Rank& rank, Peer& peer) {
  char* const buffer = Filled(rank, 1);
  EXPECT_NCCL(Sum(rank, buffer));
  rank.Synchronize();
  EXPECT_NCCL(Sum(rank, buffer));
  EXPECT_EQ(AsyncError(rank), ncclSuccess);
  peer.Kill();
  EXPECT_EQ(AwaitAsyncError(rank), ncclRemoteError);
  EXPECT_TRUE(rank.HasWork());  // no results that are not there
  EXPECT_EQ(Sum(rank, buffer), ncclRemoteError);
}

void TakePartOnce(Rank& rank, Channel& channel) {
  EXPECT_NCCL(Sum(rank, Filled(rank, 1)));
  rank.Synchronize();
  channel.Receive();  // killed here
}

CONFORMANCE_TEST(Deaths, AnAbortEndsTheWaitForAKilledRank) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        KillInTheMiddle(rank, peer);
        EXPECT_NCCL(Nccl().ncclCommAbort(rank.comm()));
        rank.Synchronize();
        EXPECT_EQ(Sum(rank, Filled(rank, 1)), ncclInvalidArgument);
      },
      TakePartOnce);
}

CONFORMANCE_TEST(Deaths, AProcessWhoseStreamWaitsCanEnd) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        KillInTheMiddle(rank, peer);
        exit(Verdict());  // runs what was registered for the end
      },
      TakePartOnce);
}

CONFORMANCE_TEST(Deaths, AKilledSenderIsNoticedByItsReceiver) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        EXPECT_NCCL(Nccl().ncclRecv(Filled(rank, 1), kCount, ncclInt32, 1,
                                    rank.comm(), rank.stream()));
        peer.Kill();
        EXPECT_EQ(AwaitAsyncError(rank), ncclRemoteError);
        EXPECT_NCCL(Nccl().ncclCommAbort(rank.comm()));
        rank.Synchronize();
      },
      [](Rank&, Channel& channel) { channel.Receive(); });
}

CONFORMANCE_TEST(Deaths, ARankThatAbortsIsNoticedByItsPeers) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        EXPECT_NCCL(Sum(rank, Filled(rank, 1)));
        peer.channel().Send(0);
        EXPECT_EQ(AwaitAsyncError(rank), ncclRemoteError);
        EXPECT_NCCL(Nccl().ncclCommAbort(rank.comm()));
        rank.Synchronize();
        peer.Join();
      },
      [](Rank& rank, Channel& channel) {
        channel.Receive();
        EXPECT_NCCL(Nccl().ncclCommAbort(rank.comm()));
      });
}

CONFORMANCE_TEST(Deaths, AnAbortEndsAWaitForALivingRank) {
  RunPair(
      [](Rank& rank, Peer& peer) {
        EXPECT_NCCL(Sum(rank, Filled(rank, 1)));
        EXPECT_TRUE(rank.HasWork());
        EXPECT_NCCL(Nccl().ncclCommAbort(rank.comm()));
        rank.Synchronize();
        peer.channel().Send(0);
        peer.Join();
      },
      [](Rank&, Channel& channel) { channel.Receive(); });
}

// The last collective of the rank that leaves still completes on the other
// ranks.
CONFORMANCE_TEST(Deaths, ARankMayDestroyItsCommunicatorFirst) {
  RunRanks(2, [](Rank& rank) {
    char* const buffer = Filled(rank, 1);
    Gate gate;
    if (rank.rank() == 0) {
      EXPECT_EQ(gate.Block(rank.stream()), CUDA_SUCCESS);
    }
    EXPECT_NCCL(Sum(rank, buffer));
    gate.Open();
    EXPECT_NCCL(Nccl().ncclCommDestroy(rank.comm()));
    EXPECT_EQ(ValueIn(rank, buffer), 2);
  });
}

CONFORMANCE_TEST(Mistakes, RanksThatDisagreeGetAnError) {
  EMULATED_ONLY("what ranks that disagree get");
  RunRanks(2, [](Rank& rank) {
    const auto rank_number = static_cast<size_t>(rank.rank());
    EXPECT_NCCL(Sum(rank, Filled(rank, 1), kCount - rank_number));
    EXPECT_EQ(AwaitAsyncError(rank), ncclInvalidUsage);
    EXPECT_NCCL(Nccl().ncclCommAbort(rank.comm()));
    rank.Synchronize();
  });
}

CONFORMANCE_TEST(Mistakes, AreRefusedAtTheCall) {
  EMULATED_ONLY("which mistakes are noticed");
  RunRanks(2, [](Rank& rank) {
    char* const good = Filled(rank, 1);
    std::vector<char> host(kBytes);
    const auto type = [&](unsigned number) {
      return Nccl().ncclAllReduce(good, good, kCount,
                                  static_cast<ncclDataType_t>(number), ncclSum,
                                  rank.comm(), rank.stream());
    };
    EXPECT_EQ(Sum(rank, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Sum(rank, host.data()), ncclInvalidArgument);
    EXPECT_EQ(type(ncclNumTypes), ncclInvalidArgument);
    EXPECT_EQ(type(ncclFloat8e4m3), ncclInvalidArgument);
    EXPECT_EQ(Nccl().ncclBcast(good, kCount, ncclInt32, 2, rank.comm(),
                               rank.stream()),
              ncclInvalidArgument);
    EXPECT_EQ(Nccl().ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_NCCL(Nccl().ncclGroupStart());
    EXPECT_EQ(Sum(rank, nullptr), ncclInvalidArgument);
    EXPECT_NCCL(Sum(rank, good));
    EXPECT_EQ(Nccl().ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_FALSE(rank.HasWork());
    const auto window = reinterpret_cast<ncclResult_t (*)()>(
        FindInNccl("ncclCommWindowRegister"));
    EXPECT_EQ(window(), ncclInvalidUsage);
    EXPECT_NCCL(Sum(rank, good, 0));
    EXPECT_EQ(AsyncError(rank), ncclSuccess);
    EXPECT_EQ(ValueIn(rank, good), 1);
  });
}

CONFORMANCE_TEST(Communicators, TwoRanksOfADeviceAreRefused) {
  setenv("EMUCUDA_DEVICES", "2", 1);
  ncclComm_t comms[2];
  const int devices[] = {1, 1};
  EXPECT_EQ(Nccl().ncclCommInitAll(comms, 2, devices), ncclInvalidUsage);
}

CONFORMANCE_TEST(Communicators, MemoryForNcclIsTheDevices) {
  RunRanks(2, [](Rank& rank) {
    void* memory = nullptr;
    void* handle = nullptr;
    EXPECT_NCCL(Nccl().ncclMemAlloc(&memory, kBytes));
    EXPECT_NCCL(Nccl().ncclCommRegister(rank.comm(), memory, kBytes, &handle));
    EXPECT_CUDA(Runtime().cudaMemset(memory, 0, kBytes));
    EXPECT_NCCL(Sum(rank, static_cast<char*>(memory)));
    EXPECT_EQ(ValueIn(rank, static_cast<char*>(memory)), 0);
    EXPECT_NCCL(Nccl().ncclCommDeregister(rank.comm(), handle));
    EXPECT_NCCL(Nccl().ncclMemFree(memory));
  });
}

}  // namespace
}  // namespace fineserve::conformance
