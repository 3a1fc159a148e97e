#ifndef TESTS_CONFORMANCE_COLLECTIVES_H_
#define TESTS_CONFORMANCE_COLLECTIVES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/runtime.h"
#include "tools/lab/device/nccl/api_list.h"

namespace fineserve::conformance {

using namespace nccl;  // NOLINT: the tests use NCCL's names

// NCCL's functions, found by dlsym.
struct NcclFunctions {
#define FINESERVE_NCCL_MEMBER(name, args) ncclResult_t(*name) args = nullptr;
  EMUCUDA_NCCL_API(FINESERVE_NCCL_MEMBER)
#undef FINESERVE_NCCL_MEMBER
};

// The library under test: $FINESERVE_LIBNCCL, or else the emulated one. A
// missing function fails the test.
const NcclFunctions& Nccl();
void* FindInNccl(const char* name);

// One rank of a communicator: a process with one device and a separate stream.
class Rank {
 public:
  Rank(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  // Makes the rank's device current and joins.
  void Join(const ncclUniqueId& id);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

  // Returns device memory that holds `bytes`. The memory lives as long as the
  // process.
  char* Upload(const std::vector<char>& bytes) const;
  char* Allocate(size_t bytes) const;
  // Waits for the stream first.
  std::vector<char> Download(const char* from, size_t bytes) const;
  // Expects that all submitted work has run.
  void Synchronize() const;
  bool HasWork() const;  // whether something submitted has not run

 private:
  const int rank_;
  const int ranks_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Runs `body` in `ranks` processes, one for each rank; the calling process is
// rank 0. Failed expectations in any process fail the test.
void RunRanks(int ranks, const std::function<void(Rank&)>& body);

// Runs two ranks with different bodies, which can talk to each other. The
// second rank is not joined if it was killed.
void RunPair(const std::function<void(Rank&, Peer&)>& first,
             const std::function<void(Rank&, Channel&)>& second);

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_COLLECTIVES_H_
