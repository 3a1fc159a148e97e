#include "daemon/server/engine_page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "absl/strings/str_cat.h"
#include "daemon/abi/engine_page.h"

namespace fineserve::server {
namespace {

absl::Status Errno(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("engine page: ", what, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<driver::Descriptor> MakePage(uint64_t epoch,
                                            slab::EngineId engine, pid_t pid) {
  driver::Descriptor fd(
      memfd_create(abi::kPageMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Errno("memfd_create");
  abi::PageHeader header{};
  memcpy(header.magic, abi::kPageMagic, sizeof(header.magic));
  header.abi_version = abi::kAbiVersion;
  header.pid = static_cast<uint32_t>(pid);
  header.page_bytes = abi::kPageBytes;
  header.epoch = epoch;
  header.engine_id = slab::Number(engine);
  if (ftruncate(fd.get(), abi::kPageBytes) != 0) return Errno("ftruncate");
  if (pwrite(fd.get(), &header, sizeof(header), 0) !=
      static_cast<ssize_t>(sizeof(header))) {
    return Errno("pwrite");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Errno("F_ADD_SEALS");
  }
  return fd;
}

absl::Status SealPage(const driver::Descriptor& page) {
  if (fcntl(page.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return Errno("F_SEAL_FUTURE_WRITE");
  }
  return absl::OkStatus();
}

}  // namespace fineserve::server
