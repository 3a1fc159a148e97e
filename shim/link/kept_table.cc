#include "shim/link/kept_table.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace fineserve::shim {

void KeptTable::Keep(int fd) {
  struct stat st;
  base_ = nullptr;
  bytes_ = 0;
  if (fstat(fd, &st) == 0 && st.st_size > 0) {
    const auto bytes = static_cast<size_t>(st.st_size);
    void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) {
      base_ = mapped;
      bytes_ = bytes;
    }
  }
  descriptor_.Close();
  descriptor_.Adopt(fd);
}

bool KeptTable::IsSealed() const {
  const int seals = fcntl(descriptor_.Get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace fineserve::shim
