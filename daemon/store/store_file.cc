#include "daemon/store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::store {
namespace {

// A value of /proc/meminfo in bytes; 0 if it is not there.
uint64_t MemInfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::stoull(line.substr(name.size() + 1)) * 1024;
    }
  }
  return 0;
}

// What this process's cgroup (v2) may still take; all, without a limit.
uint64_t LeftInCgroup() {
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    uint64_t most = 0;
    uint64_t used = 0;
    std::ifstream limit(folder + "/memory.max");
    std::ifstream current(folder + "/memory.current");
    if (limit >> most && current >> used) return most > used ? most - used : 0;
  }
  return UINT64_MAX;
}

}  // namespace

absl::StatusOr<StoreFile> StoreFile::Create() {
  driver::Descriptor file(
      memfd_create("fineserve-store", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat st;
  if (!file.valid() || fstat(file.get(), &st) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make the store's file: ", strerror(errno)));
  }
  // Mappings of it cannot fault by its end.
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  return StoreFile(std::move(file), 0, st.st_ino);
}

absl::StatusOr<StoreFile> StoreFile::Adopt(driver::Descriptor file) {
  struct stat st;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      fstat(file.get(), &st) != 0) {
    return absl::InvalidArgumentError("this is no file of a store");
  }
  return StoreFile(std::move(file), static_cast<uint64_t>(st.st_size),
                   st.st_ino);
}

absl::StatusOr<uint64_t> StoreFile::Append(uint64_t bytes) {
  const int error = posix_fallocate(file_.get(), static_cast<off_t>(end_),
                                    static_cast<off_t>(bytes));
  if (error != 0) {
    // Part of it may have been reserved.
    Free(end_, bytes);
    return absl::ResourceExhaustedError(
        absl::StrCat("the host has no memory for the copy: ", strerror(error)));
  }
  return std::exchange(end_, end_ + bytes);
}

void StoreFile::Free(uint64_t offset, uint64_t bytes) {
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

bool StoreFile::HasAll(uint64_t offset, uint64_t bytes) const {
  if (offset > end_ || bytes > end_ - offset) return false;
  const off_t hole = lseek(file_.get(), static_cast<off_t>(offset), SEEK_HOLE);
  return hole >= 0 && static_cast<uint64_t>(hole) >= offset + bytes;
}

MappedRange::MappedRange(const StoreFile& file, uint64_t offset, uint64_t bytes)
    : bytes_(bytes) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                          file.descriptor(), static_cast<off_t>(offset));
  base_ = base == MAP_FAILED ? nullptr : static_cast<char*>(base);
}

MappedRange::~MappedRange() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

uint64_t SpareHostBytes() {
  const uint64_t reserve = MemInfo("MemTotal") / 16;
  const uint64_t available = MemInfo("MemAvailable");
  return std::min(available > reserve ? available - reserve : 0,
                  LeftInCgroup());
}

}  // namespace fineserve::store
