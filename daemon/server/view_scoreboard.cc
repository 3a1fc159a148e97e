#include "daemon/server/view_scoreboard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::server {
namespace {

absl::Status Errno(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("view scoreboard: ", what, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<ViewScoreboard> ViewScoreboard::Create(uint64_t epoch,
                                                      slab::EngineId engine,
                                                      pid_t pid,
                                                      uint32_t slab_count) {
  const size_t bytes = abi::ViewScoreboardBytes(slab_count);
  driver::Descriptor fd(memfd_create(abi::kViewScoreboardMemfdName,
                                     MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Errno("memfd_create");
  abi::ViewScoreboardHeader header{};
  memcpy(header.magic, abi::kViewScoreboardMagic, sizeof(header.magic));
  header.abi_version = abi::kAbiVersion;
  header.pid = static_cast<uint32_t>(pid);
  header.page_bytes = bytes;
  header.epoch = epoch;
  header.engine_id = slab::Number(engine);
  header.slab_count = slab_count;
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Errno("ftruncate");
  }
  if (pwrite(fd.get(), &header, sizeof(header), 0) !=
      static_cast<ssize_t>(sizeof(header))) {
    return Errno("pwrite");
  }
  // Not against writing: the engine has yet to map it, and what others of this
  // user write there is no worse than what it may write itself.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
      0) {
    return Errno("F_ADD_SEALS");
  }
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Errno("mmap");
  return ViewScoreboard(std::move(fd), base, bytes);
}

ViewScoreboard::ViewScoreboard(ViewScoreboard&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_) {}

ViewScoreboard& ViewScoreboard::operator=(ViewScoreboard&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ViewScoreboard::~ViewScoreboard() {
  if (base_ != nullptr) munmap(const_cast<void*>(base_), bytes_);
}

uint32_t ViewScoreboard::UsedBlocks(slab::SlabId slab) const {
  const size_t offset = sizeof(abi::ViewScoreboardHeader) +
                        (size_t{slab::Number(slab)} + 1) * sizeof(uint32_t);
  if (offset + sizeof(uint32_t) > bytes_) return 0;
  // Relaxed: a hint, and the engine writes it whenever it likes.
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(
                             static_cast<const char*>(base_) + offset),
                         __ATOMIC_RELAXED);
}

uint64_t ViewScoreboard::UsedBlocks(uint64_t most) const {
  const auto* header = static_cast<const abi::ViewScoreboardHeader*>(base_);
  return std::min(most, header->used_blocks.load(std::memory_order_relaxed));
}

}  // namespace fineserve::server
