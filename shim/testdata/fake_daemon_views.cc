// The part of FakeDaemon that has a pool of slabs and serves views of it.

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/abi/view_scoreboard.h"
#include "shim/testdata/fake_daemon.h"

namespace fineserve::shim {

int FakeDaemon::MakeTable() {
  if (table_descriptor_ >= 0) return dup(table_descriptor_);
  const size_t bytes = abi::TableBytes(options_.slab_count);
  const int fd =
      memfd_create(abi::kTableMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) perror("table");
  auto* table = static_cast<abi::TableHeader*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  memcpy(table->magic, abi::kTableMagic, sizeof(table->magic));
  table->abi_version = abi::kAbiVersion;
  table->table_bytes = bytes;
  table->epoch = options_.epoch;
  table->engine_capacity = abi::kEngineCapacity;
  table->engines_offset = sizeof(abi::TableHeader);
  table->slabs_offset =
      static_cast<uint32_t>(sizeof(abi::TableHeader) +
                            abi::kEngineCapacity * sizeof(abi::EngineEntry));
  table->granule_bytes = options_.granule_bytes;
  table->granules_per_slab = options_.granules_per_slab;
  table->slab_count = options_.slab_count;
  table->gives_room = options_.room.empty() ? 0 : 1;
  table_ = table;
  if (fault_ != Fault::kShrinkable) {
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  }
  table_descriptor_ = fd;
  return dup(fd);
}

abi::SlabEntry* FakeDaemon::SlabAt(uint32_t slab) const {
  auto* base = reinterpret_cast<char*>(table());
  return reinterpret_cast<abi::SlabEntry*>(base + table()->slabs_offset) + slab;
}

void FakeDaemon::Regrow(uint32_t slab) {
  SlabAt(slab)->memory.fetch_add(1, std::memory_order_relaxed);
  SetSlab(slab, {});
}

void FakeDaemon::SetSlab(uint32_t slab, abi::SlabWord word, bool tell) {
  auto* base = reinterpret_cast<char*>(table());
  // Release: like the daemon's. Pairs with the shim's acquire of the word.
  SlabAt(slab)->word.store(abi::SlabWord::Pack(word),
                           std::memory_order_release);
  if (!tell) return;
  auto* engines =
      reinterpret_cast<abi::EngineEntry*>(base + table()->engines_offset);
  std::atomic<uint32_t>* changes = &engines[kSlot].changes;
  // Release: publishes the word.
  changes->fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FakeDaemon::SetFreeSince(uint32_t slab, uint64_t since_ns) {
  SlabAt(slab)->since_ns.store(since_ns, std::memory_order_relaxed);
  SetSlab(slab, {abi::SlabState::kFree});
}

FakeDaemon::ViewLog FakeDaemon::views() const {
  CatchUp();
  std::lock_guard<std::mutex> lock(mutex_);
  return views_;
}

bool FakeDaemon::AnswerView(int socket, const abi::ViewRequest& request) {
  if (fault_ == Fault::kRefuseView) {
    return Refuse(socket, request.header.sequence, abi::RefusalCode::kFormat,
                  "slabs of 4 MiB hold no such block");
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    views_.request = request;
  }
  if (fault_ == Fault::kCloseAtView) return false;
  auto answer = abi::MakeMessage<abi::ViewAnswer>(request.header.sequence);
  answer.granules_per_plane = options_.granules_per_slab / request.planes;
  answer.plane_bytes = answer.granules_per_plane * options_.granule_bytes;
  if (fault_ == Fault::kWrongView) answer.plane_bytes += 4096;
  answer.slab_count = options_.slab_count;
  answer.engine_slot = kSlot;
  answer.floor_slabs = options_.floor_slabs;
  answer.cap_slabs =
      options_.cap_slabs != 0 ? options_.cap_slabs : options_.slab_count;
  const int scoreboard = Memfd(abi::kViewScoreboardMemfdName,
                               abi::ViewScoreboardBytes(options_.slab_count));
  const bool sent = abi::Send(socket, answer, &scoreboard, 1) == 0;
  const int before = view_scoreboard_.exchange(scoreboard);
  if (before >= 0) close(before);
  return sent;
}

bool FakeDaemon::AnswerPoolGranules(int socket,
                                    const abi::PoolGranuleRequest& request) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    batch_sizes_.push_back(request.max_count);
    ++pool_batches_;
  }
  if (fault_ == Fault::kSilentAtPoolGranules) return true;
  if (fault_ == Fault::kRefusePoolGranules ||
      (fault_ == Fault::kRefuseGranulesOnce && pool_batches_ == 2)) {
    return Refuse(socket, request.header.sequence,
                  abi::RefusalCode::kUnknownLease, "not yours");
  }
  if (fault_ == Fault::kCloseAtPoolGranules && pool_batches_ >= 2) {
    return false;
  }
  auto batch = abi::MakeMessage<abi::GranuleBatch>(request.header.sequence);
  batch.first = request.first;
  // Like a daemon that is short of descriptors.
  batch.count = std::min(request.max_count, options_.most_granules);
  std::vector<int> fds;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const uint32_t number = request.first + i + 1;
    fds.push_back(Memfd("granule", 4096));
    if (pwrite(fds.back(), &number, sizeof(number), 0) < 0) perror("granule");
  }
  const bool sent = abi::Send(socket, batch, fds.data(), batch.count) == 0;
  for (int fd : fds) close(fd);
  return sent;
}

bool FakeDaemon::AnswerActivate(int socket,
                                const abi::ActivateRequest& request) {
  if (fault_ == Fault::kCloseAtActivate) return false;
  if (fault_ == Fault::kRefuseActivate) {
    return Refuse(socket, request.header.sequence, abi::RefusalCode::kView,
                  "too few slabs");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  views_.active_slabs = request.slabs;
  views_.active_wanted = request.wanted;
  const auto done =
      abi::MakeMessage<abi::ActivateDone>(request.header.sequence);
  return abi::Send(socket, done) == 0;
}

bool FakeDaemon::Note(const abi::Received& received, int socket) {
  std::lock_guard<std::mutex> lock(mutex_);
  abi::WantNotice want;
  abi::ReturnNotice back;
  abi::CloseViewRequest closing;
  if (received.As(&want)) {
    views_.wanted.push_back(want.wanted);
    return true;
  }
  if (received.As(&back)) {
    for (uint32_t i = 0; i < back.count; ++i) {
      views_.returned.emplace_back(back.entries[i].slab, back.entries[i].lease);
    }
    return true;
  }
  if (!received.As(&closing)) return false;
  ++(closing.suspended == 1 ? views_.suspended : views_.closed);
  const auto done =
      abi::MakeMessage<abi::CloseViewDone>(closing.header.sequence);
  return abi::Send(socket, done) == 0;
}

}  // namespace fineserve::shim
