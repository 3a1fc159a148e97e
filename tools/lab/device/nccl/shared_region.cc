#include "tools/lab/device/nccl/shared_region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "tools/lab/device/machine/environment_settings.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::nccl {
namespace {

constexpr size_t kPairs = size_t{kMaxRanks} * kMaxRanks;
constexpr size_t kRankSlots = sizeof(RegionHeader);
constexpr size_t kLaneSlots = kRankSlots + kMaxRanks * sizeof(RankSlot);
constexpr size_t kPairSlots =
    kLaneSlots + kLanes * kMaxRanks * sizeof(LaneSlot);
// Buffers begin at a whole page.
constexpr size_t kStreamBuffers =
    (kPairSlots + kPairs * sizeof(PairSlot) + 4095) / 4096 * 4096;
constexpr size_t kCallBuffers =
    kStreamBuffers + 2 * kMaxRanks * kStreamBufferBytes;
constexpr size_t kPairBuffers = kCallBuffers + 2 * kMaxRanks * kCallBufferBytes;
constexpr size_t kRegionBytes =
    kPairBuffers + kPairPieces * kPairs * kPairBufferBytes;

std::string PathOf(const std::string& name, const emucuda::Settings& settings,
                   std::string* complaint) {
  const auto folder = emucuda::StateFolder::Open(settings.folder, complaint);
  return folder ? folder->path() + "/" + name : std::string();
}

char* MapFile(const std::string& path, std::string* complaint) {
  const emucuda::Descriptor file(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  void* base = MAP_FAILED;
  if (file.valid() && ftruncate(file.get(), kRegionBytes) == 0) {
    base = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                file.get(), 0);
  }
  if (base != MAP_FAILED) return static_cast<char*>(base);
  *complaint = path + ": " + strerror(errno);
  return nullptr;
}

int Index(int sender, int receiver) { return sender * kMaxRanks + receiver; }

}  // namespace

std::unique_ptr<SharedRegion> SharedRegion::Open(const std::string& name,
                                                 int ranks,
                                                 std::string* complaint) {
  const emucuda::Settings settings = emucuda::ReadSettings(complaint);
  std::string path = PathOf(name, settings, complaint);
  if (path.empty()) return nullptr;
  char* const base = MapFile(path, complaint);
  if (base == nullptr) return nullptr;
  std::unique_ptr<SharedRegion> region(
      new SharedRegion(std::move(path), base, settings.sends_are_buffered));
  const auto wanted = static_cast<uint32_t>(ranks);
  uint32_t found = 0;
  if (region->header().ranks.compare_exchange_strong(found, wanted) ||
      found == wanted) {
    return region;
  }
  *complaint = "the communicator has " + std::to_string(found) +
               " ranks for another process, and " + std::to_string(wanted) +
               " for this one";
  return nullptr;
}

SharedRegion::~SharedRegion() { munmap(base_, kRegionBytes); }

RankSlot& SharedRegion::rank(int rank) const {
  return Place<RankSlot>(kRankSlots)[rank];
}

LaneSlot& SharedRegion::lane(Lane lane, int rank) const {
  return Place<LaneSlot>(kLaneSlots)[static_cast<int>(lane) * kMaxRanks + rank];
}

PairSlot& SharedRegion::pair(int sender, int receiver) const {
  return Place<PairSlot>(kPairSlots)[Index(sender, receiver)];
}

size_t SharedRegion::LaneBufferBytes(Lane lane) {
  return lane == Lane::kStream ? kStreamBufferBytes : kCallBufferBytes;
}

char* SharedRegion::LaneBuffer(Lane lane, int rank, uint64_t number) const {
  const size_t begin = lane == Lane::kStream ? kStreamBuffers : kCallBuffers;
  const size_t index = 2 * static_cast<size_t>(rank) + number % 2;
  return base_ + begin + index * LaneBufferBytes(lane);
}

char* SharedRegion::PairBuffer(int sender, int receiver,
                               uint64_t number) const {
  const size_t index =
      kPairPieces * static_cast<size_t>(Index(sender, receiver)) +
      number % kPairPieces;
  return base_ + kPairBuffers + index * kPairBufferBytes;
}

void SharedRegion::Ring() const {
  // Release, pairing with the acquire in Bell: a rank that sees the new value
  // also sees what was changed before it. The change of the word itself
  // prevents a missed wake-up.
  header().bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &header().bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

uint32_t SharedRegion::Bell() const {
  return header().bell.load(std::memory_order_acquire);
}

void SharedRegion::Sleep(uint32_t seen, int milliseconds) const {
  const timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  syscall(SYS_futex, &header().bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void SharedRegion::Unlink() const { unlink(path_.c_str()); }

}  // namespace fineserve::nccl
