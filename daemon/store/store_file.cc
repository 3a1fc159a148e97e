#include "daemon/store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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
  if (ftruncate(file_.get(), static_cast<off_t>(end_ + bytes)) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store's file cannot grow: ", strerror(errno)));
  }
  return std::exchange(end_, end_ + bytes);
}

void StoreFile::Free(uint64_t offset, uint64_t bytes) {
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

void StoreFile::Close() {
  file_.Reset();
  inode_ = 0;
}

uint64_t StoreFile::memory_bytes() const {
  struct stat st = {};
  if (!file_.valid() || fstat(file_.get(), &st) != 0) return 0;
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

bool StoreFile::HasAll(uint64_t offset, uint64_t bytes) const {
  if (offset > end_ || bytes > end_ - offset) return false;
  const off_t hole = lseek(file_.get(), static_cast<off_t>(offset), SEEK_HOLE);
  return hole >= 0 && static_cast<uint64_t>(hole) >= offset + bytes;
}

MappedRange::MappedRange(const StoreFile& file, uint64_t offset, uint64_t bytes)
    : bytes_(bytes), file_(file.descriptor()), offset_(offset) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                          file.descriptor(), static_cast<off_t>(offset));
  base_ = base == MAP_FAILED ? nullptr : static_cast<char*>(base);
}

MappedRange::~MappedRange() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

// In several threads: the kernel clears some GB/s in each.
bool MappedRange::Populate() const {
  constexpr uint64_t kPart = uint64_t{64} << 20;
  constexpr uint64_t kMostThreads = 8;
  const uint64_t threads = std::min(
      {kMostThreads, uint64_t{1} + std::thread::hardware_concurrency() / 2,
       (bytes_ + kPart - 1) / kPart});
  std::atomic<uint64_t> next{0};
  std::atomic<int> error{0};
  const auto work = [&] {
    for (uint64_t at; error == 0 && (at = next.fetch_add(kPart)) < bytes_;) {
      if (madvise(base_ + at, std::min(kPart, bytes_ - at),
                  MADV_POPULATE_WRITE) != 0) {
        error = errno;
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (uint64_t i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {
    // Those that could be started do it all.
  }
  work();
  for (std::thread& thread : others) thread.join();
  // Linux before 5.14.
  if (error == EINVAL) {
    error = posix_fallocate(file_, static_cast<off_t>(offset_),
                            static_cast<off_t>(bytes_));
  }
  return error == 0;
}

uint64_t SpareHostBytes() {
  const uint64_t reserve = MemInfo("MemTotal") / 16;
  const uint64_t available = MemInfo("MemAvailable");
  return std::min(available > reserve ? available - reserve : 0,
                  LeftInCgroup());
}

}  // namespace fineserve::store
