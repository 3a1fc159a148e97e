#include "daemon/contract/abi/sealed_memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace fineserve::abi {

SealedMemfd SealedMemfd::Create(const char* name, size_t bytes) {
  SealedMemfd made;
  driver::Descriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return made;
  }
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return made;
  made.descriptor_ = std::move(fd);
  made.base_ = base;
  made.bytes_ = bytes;
  return made;
}

SealedMemfd SealedMemfd::Adopt(driver::Descriptor fd) {
  SealedMemfd adopted;
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  struct stat st;
  if (seals < 0 || fstat(fd.get(), &st) != 0) return adopted;
  constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals & kFixed) != kFixed || st.st_size == 0) {
    errno = EINVAL;
    return adopted;
  }
  const auto bytes = static_cast<size_t>(st.st_size);
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return adopted;
  adopted.descriptor_ = std::move(fd);
  adopted.base_ = base;
  adopted.bytes_ = bytes;
  return adopted;
}

driver::Descriptor SealedMemfd::ReadOnly() const {
  char path[32];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor());
  return driver::Descriptor(open(path, O_RDONLY | O_CLOEXEC));
}

SealedMemfd::SealedMemfd(SealedMemfd&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SealedMemfd& SealedMemfd::operator=(SealedMemfd&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SealedMemfd::~SealedMemfd() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

bool SealedMemfd::SealAgainstWriters() const {
  // F_SEAL_WRITE would be refused because this process has a writable mapping.
  return fcntl(descriptor(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) ==
         0;
}

bool SealedMemfd::SealForGood() const {
  return fcntl(descriptor(), F_ADD_SEALS, F_SEAL_SEAL) == 0;
}

}  // namespace fineserve::abi
