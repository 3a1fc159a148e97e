#include "daemon/server/engine_scoreboard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "absl/strings/str_cat.h"
#include "daemon/abi/engine_scoreboard.h"

namespace fineserve::server {
namespace {

absl::Status Errno(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("engine scoreboard: ", what, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<driver::Descriptor> MakeScoreboard(uint64_t epoch,
                                                  slab::EngineId engine,
                                                  pid_t pid) {
  driver::Descriptor fd(
      memfd_create(abi::kScoreboardMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Errno("memfd_create");
  abi::ScoreboardHeader header{};
  memcpy(header.magic, abi::kScoreboardMagic, sizeof(header.magic));
  header.abi_version = abi::kAbiVersion;
  header.pid = static_cast<uint32_t>(pid);
  header.page_bytes = abi::kScoreboardBytes;
  header.epoch = epoch;
  header.engine_id = slab::Number(engine);
  if (ftruncate(fd.get(), abi::kScoreboardBytes) != 0)
    return Errno("ftruncate");
  if (pwrite(fd.get(), &header, sizeof(header), 0) !=
      static_cast<ssize_t>(sizeof(header))) {
    return Errno("pwrite");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Errno("F_ADD_SEALS");
  }
  return fd;
}

absl::Status SealScoreboard(const driver::Descriptor& scoreboard) {
  if (fcntl(scoreboard.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) !=
      0) {
    return Errno("F_SEAL_FUTURE_WRITE");
  }
  return absl::OkStatus();
}

}  // namespace fineserve::server
