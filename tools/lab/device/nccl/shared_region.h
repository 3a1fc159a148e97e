#ifndef TOOLS_LAB_DEVICE_NCCL_SHARED_REGION_H_
#define TOOLS_LAB_DEVICE_NCCL_SHARED_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::nccl {

inline constexpr int kMaxRanks = emucuda::kMaxDevices;

// Describes a rank's operation in one step. All ranks of a collective, and both
// ends of a transfer, must have equal signatures.
struct Signature {
  uint32_t kind = 0;
  uint32_t type = 0;
  uint32_t op = 0;
  uint32_t root = 0;
  uint64_t count = 0;  // elements of the whole operation

  bool operator==(const Signature&) const = default;
};

// The shared memory of one communicator: a file of the state folder, which is
// mapped by every rank and vanishes from the folder when all have joined.
//
//   header                                    64 bytes
//   a RankSlot for each rank                  64 bytes each
//   a LaneSlot for each lane and rank         64 bytes each
//   a PairSlot for each sender and receiver
//   buffers of the two lanes, two each: one is filled while the other is read
//   buffers of the pairs, kPairPieces each
//
// A fresh file is all zero, which is the initial state. The file is sparse:
// what a communicator does not use costs nothing. All ranks are processes of
// one user, which trust each other.
struct RegionHeader {
  // The number of ranks, and how many have joined so far.
  std::atomic<uint32_t> ranks;
  std::atomic<uint32_t> joined;
  // Changes whenever anything else does; waiting ranks sleep on it (futex).
  std::atomic<uint32_t> bell;
  uint32_t reserved[13];
};

struct alignas(64) RankSlot {
  std::atomic<uint32_t> claimed;
  // Stored with release, to publish bus_id; pairs with the acquire in
  // Communicator.
  std::atomic<int32_t> pid;  // 0 until the rank has joined
  std::atomic<uint32_t> left;
  char bus_id[16];
};

// Collective steps are numbered from 1, separately in each lane. Step s uses
// buffer s % 2.
struct alignas(64) LaneSlot {
  // Stored with release, to publish the signature and the buffer of the step;
  // pairs with the acquire of the ranks that read them.
  std::atomic<uint64_t> arrived;
  // Stored with release once the rank has read what it needs of all buffers of
  // the step; pairs with the acquire of the ranks that then write to their
  // buffers again.
  std::atomic<uint64_t> consumed;
  Signature signatures[2];
};

// Pieces of transfers are numbered from 1; piece p uses buffer p % kPairPieces.
inline constexpr uint64_t kPairPieces = 16;
struct alignas(64) PairSlot {
  std::atomic<uint64_t> written;  // as `arrived`
  std::atomic<uint64_t> read;     // as `consumed`
  Signature signatures[kPairPieces];
};

static_assert(sizeof(RegionHeader) == 64);
static_assert(sizeof(RankSlot) == 64);
static_assert(sizeof(LaneSlot) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The parties to an exchange: streams, or calling threads.
enum class Lane { kStream = 0, kCall = 1 };
inline constexpr int kLanes = 2;

// Heuristic: large enough to make a step's wake-ups cheap.
inline constexpr size_t kStreamBufferBytes = size_t{1} << 20;
inline constexpr size_t kCallBufferBytes = 4096;
// All of a pair's hold 4 MiB, as NCCL's do by default (NCCL_BUFFSIZE).
inline constexpr size_t kPairBufferBytes = size_t{256} << 10;

// One rank's mapping of the file. Immutable after Open, and therefore
// thread-safe; shared values are atomic, or published by an atomic.
class SharedRegion {
 public:
  // Opens the file `name` in the state folder of this process's settings, or
  // creates it. Returns null and sets `complaint` if that fails, or if another
  // rank expects a different number of ranks.
  static std::unique_ptr<SharedRegion> Open(const std::string& name, int ranks,
                                            std::string* complaint);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  RegionHeader& header() const { return *Place<RegionHeader>(0); }
  RankSlot& rank(int rank) const;
  LaneSlot& lane(Lane lane, int rank) const;
  PairSlot& pair(int sender, int receiver) const;
  // Both functions return the buffer for step or piece `number`.
  char* LaneBuffer(Lane lane, int rank, uint64_t number) const;
  char* PairBuffer(int sender, int receiver, uint64_t number) const;
  // True if a send may end before it was received (EMUCUDA_SENDS=buffered).
  bool sends_are_buffered() const { return sends_are_buffered_; }
  static size_t LaneBufferBytes(Lane lane);

  // Wakes all ranks that wait for a change. Must be called after each change.
  void Ring() const;
  // Returns the bell's current value; call it before looking at the state.
  uint32_t Bell() const;
  // Sleeps until the bell differs from `seen`, or for `milliseconds`.
  void Sleep(uint32_t seen, int milliseconds) const;

  // Removes the file from the folder; mappings remain.
  void Unlink() const;

 private:
  SharedRegion(std::string path, char* base, bool sends_are_buffered)
      : path_(std::move(path)),
        base_(base),
        sends_are_buffered_(sends_are_buffered) {}
  template <typename T>
  T* Place(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  const std::string path_;
  char* const base_;
  const bool sends_are_buffered_;
};

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_SHARED_REGION_H_
