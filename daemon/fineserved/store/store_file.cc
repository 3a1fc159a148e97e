#include "daemon/fineserved/store/store_file.h"

#include <errno.h>
#include <fcntl.h>
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
#include "daemon/base/errno_status.h"

namespace fineserve::store {
namespace {

absl::Status Exhausted(absl::string_view what) {
  return base::ErrnoStatus(what, absl::StatusCode::kResourceExhausted);
}

// Returns a value of /proc/meminfo in bytes; 0 if it is missing.
uint64_t MemInfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::stoull(line.substr(name.size() + 1)) * 1024;
    }
  }
  return 0;
}

struct CgroupMemory {
  uint64_t most = UINT64_MAX;  // it may take
  uint64_t used = 0;
};

// Reads the limit of this process's cgroup (v2).
CgroupMemory OwnCgroup() {
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    CgroupMemory memory;
    std::ifstream limit(folder + "/memory.max");
    std::ifstream current(folder + "/memory.current");
    if (limit >> memory.most && current >> memory.used) return memory;
  }
  return {};
}

uint64_t Less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// Returns the part of the machine's memory that is left to others, in bytes.
uint64_t Reserve() { return MemInfo("MemTotal") / 16; }

// The owner's: no file gets there.
constexpr off_t kOwnerByte = off_t{1} << 62;
// Mode of files whose users lock what they need; otherwise a memfd's mode is
// 0777.
constexpr mode_t kLocksMode = S_IRUSR | S_IWUSR;

bool IsInAFile(const FileRange& range) {
  constexpr auto kEnd = static_cast<uint64_t>(kOwnerByte);
  return range.bytes != 0 && range.offset < kEnd &&
         range.bytes < kEnd - range.offset;
}

struct flock LockOf(int16_t type, const FileRange& range) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(range.offset);
  lock.l_len = static_cast<off_t>(range.bytes);
  return lock;
}

// Waits for no one.
bool SetLock(int file, int16_t type, const FileRange& range) {
  struct flock lock = LockOf(type, range);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

// Opens the file again, with a separate file description, because duplicated
// descriptors share their locks.
driver::Descriptor OpenAgain(int file) {
  return driver::Descriptor(
      open(absl::StrCat("/proc/self/fd/", file).c_str(), O_RDWR | O_CLOEXEC));
}

// Merges adjacent copies to need fewer locks, because the kernel walks all of
// them.
std::vector<FileRange> Merged(std::vector<FileRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const FileRange& a, const FileRange& b) {
              return a.offset < b.offset;
            });
  std::vector<FileRange> merged;
  for (const FileRange& range : ranges) {
    if (merged.empty() ||
        merged.back().offset + merged.back().bytes < range.offset) {
      merged.push_back(range);
      continue;
    }
    merged.back().bytes = std::max(merged.back().offset + merged.back().bytes,
                                   range.offset + range.bytes) -
                          merged.back().offset;
  }
  return merged;
}

}  // namespace

absl::StatusOr<StoreFile> StoreFile::Create() {
  driver::Descriptor file(
      memfd_create("fineserve-store", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat st;
  if (!file.valid() || fstat(file.get(), &st) != 0 ||
      fchmod(file.get(), kLocksMode) != 0) {
    return Exhausted("cannot make the store's file");
  }
  // The file cannot shrink, so its mappings cannot fault.
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  StoreFile made(std::move(file), st.st_ino, /*has_locks=*/true);
  if (!made.Own()) {
    return base::ErrnoStatus("the kernel locks no parts of files in memory",
                             absl::StatusCode::kUnimplemented);
  }
  return made;
}

absl::StatusOr<StoreFile> StoreFile::Adopt(int file) {
  struct stat st;
  const int seals = fcntl(file, F_GET_SEALS);
  driver::Descriptor own;
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) own = OpenAgain(file);
  if (!own.valid() || fstat(own.get(), &st) != 0) {
    return absl::InvalidArgumentError("this is no file of a store");
  }
  return StoreFile(std::move(own), st.st_ino,
                   (st.st_mode & ALLPERMS) == kLocksMode);
}

bool StoreFile::Own() {
  return has_locks_ && file_.valid() &&
         SetLock(file_.get(), F_WRLCK, {kOwnerByte, 1});
}

absl::StatusOr<uint64_t> StoreFile::Append(uint64_t bytes) {
  if (ftruncate(file_.get(), static_cast<off_t>(end_ + bytes)) != 0 ||
      !SetLock(file_.get(), F_RDLCK, {end_, bytes})) {
    return Exhausted("the store's file cannot grow");
  }
  return std::exchange(end_, end_ + bytes);
}

bool StoreFile::Lock(const FileRange& copy) {
  if (!IsInAFile(copy)) return false;
  if (has_locks_ && !SetLock(file_.get(), F_RDLCK, copy)) return false;
  // Checked only now, because the copy cannot be freed from here on.
  if (HasAll(copy)) return true;
  SetLock(file_.get(), F_UNLCK, copy);
  return false;
}

bool StoreFile::IsLockedByOthers(const FileRange& copy) const {
  struct flock lock = LockOf(F_WRLCK, copy);
  return fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void StoreFile::LetGo(const FileRange& copy) {
  if (!has_locks_ || !file_.valid()) return;
  // Unlocks first: if two processes let go at once, the second one can then
  // free the copy.
  SetLock(file_.get(), F_UNLCK, copy);
  if (!SetLock(file_.get(), F_WRLCK, copy)) return;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(copy.offset), static_cast<off_t>(copy.bytes));
  SetLock(file_.get(), F_UNLCK, copy);
}

void StoreFile::FreeUnlocked(uint64_t begin, uint64_t end) {
  while (has_locks_ && begin < end) {
    const off_t data = lseek(file_.get(), static_cast<off_t>(begin), SEEK_DATA);
    const off_t hole = lseek(file_.get(), data, SEEK_HOLE);
    if (data < 0 || hole < 0 || static_cast<uint64_t>(data) >= end) return;
    begin = static_cast<uint64_t>(data);
    const FileRange range = {
        begin, std::min(end, static_cast<uint64_t>(hole)) - begin};
    struct flock lock = LockOf(F_WRLCK, range);
    if (fcntl(file_.get(), F_OFD_GETLK, &lock) != 0) return;
    if (lock.l_type == F_UNLCK) {
      LetGo(range);
      begin += range.bytes;
      continue;
    }
    // The kernel reports any one of the other processes' locks.
    FreeUnlocked(begin, static_cast<uint64_t>(lock.l_start));
    begin = static_cast<uint64_t>(lock.l_start + lock.l_len);
    if (lock.l_len <= 0) return;
  }
}

absl::StatusOr<driver::Descriptor> StoreFile::Claim(
    std::vector<FileRange> copies) const {
  driver::Descriptor claim = OpenAgain(file_.get());
  if (!claim.valid()) {
    return Exhausted("the store's file cannot be opened");
  }
  for (const FileRange& range : Merged(std::move(copies))) {
    if (has_locks_ && !SetLock(claim.get(), F_RDLCK, range)) {
      return Exhausted("a copy cannot be locked");
    }
  }
  return claim;
}

void StoreFile::Unclaim(const driver::Descriptor& claim) {
  SetLock(claim.get(), F_UNLCK, {});
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

bool StoreFile::HasAll(const FileRange& copy) const {
  const off_t hole =
      lseek(file_.get(), static_cast<off_t>(copy.offset), SEEK_HOLE);
  return hole >= 0 && static_cast<uint64_t>(hole) >= copy.offset + copy.bytes;
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

// Uses several threads, since the kernel clears only some GB/s in each.
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
    // The threads that did start do all the work.
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
  const CgroupMemory cgroup = OwnCgroup();
  return std::min(Less(MemInfo("MemAvailable"), Reserve()),
                  Less(cgroup.most, cgroup.used));
}

uint64_t AllHostBytes() {
  return std::min(Less(MemInfo("MemTotal"), Reserve()), OwnCgroup().most);
}

}  // namespace fineserve::store
