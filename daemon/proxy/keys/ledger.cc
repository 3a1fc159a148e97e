#include "daemon/proxy/keys/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"

namespace fineserve::proxy {
namespace {

struct LedgerHeader {
  char magic[8];
  uint32_t version;
  uint32_t account_bytes;
  uint32_t account_count;
  char reserved[4096 - 20];
};
static_assert(sizeof(LedgerHeader) == 4096);

constexpr char kMagic[8] = {'F', 'S', 'L', 'E', 'D', 'G', 'E', 'R'};
constexpr uint32_t kVersion = 1;
constexpr size_t kBytes =
    sizeof(LedgerHeader) + Ledger::kAccounts * sizeof(Account);

constexpr int kDayBits = 40;
constexpr uint64_t kTokensMask = (uint64_t{1} << kDayBits) - 1;

uint64_t DayOf(absl::Time now) {
  return static_cast<uint64_t>(absl::ToUnixSeconds(now)) / 86'400;
}

// Returns the day that counts: the later one of the written day and the clock's
// day. A written day beyond tomorrow comes from a wrong clock and is ignored.
uint64_t Later(uint64_t written, uint64_t today) {
  return written > today + 1 ? today : std::max(written, today);
}

// Returns `there` plus `change`, but not less than 0.
uint64_t Sum(uint64_t there, int64_t change) {
  const uint64_t less = change < 0 ? static_cast<uint64_t>(-change) : 0;
  return change < 0 ? there - std::min(there, less)
                    : there + static_cast<uint64_t>(change);
}

void Add(std::atomic<uint64_t>* to, int64_t change) {
  // Relaxed: no other word is read because of this one's value.
  uint64_t was = to->load(std::memory_order_relaxed);
  while (!to->compare_exchange_weak(was, Sum(was, change),
                                    std::memory_order_relaxed)) {
  }
}

// Locks the file while this object lives.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int fd_;
};

// True if the file is empty, or if its maker died before it had written the
// header.
bool IsNew(int fd, off_t bytes) {
  static constexpr LedgerHeader kZeros = {};
  LedgerHeader header = {};
  return bytes == 0 ||
         (bytes == kBytes &&
          pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
          memcmp(&header, &kZeros, sizeof(header)) == 0);
}

// Writes the header into a file that is new; otherwise reads and checks it.
absl::Status SetUp(int fd, const std::string& path) {
  const FileLock lock(fd);
  struct stat st;
  if (fstat(fd, &st) != 0) return base::Cannot("read", path);
  LedgerHeader header = {};
  const bool is_new = IsNew(fd, st.st_size);
  if (is_new || st.st_size == kBytes) {
    // Allocates all blocks, so that a full disk is found now and not by a
    // signal at a later charge; a copy of a ledger may have holes, too.
    errno = posix_fallocate(fd, 0, kBytes);
    if (errno != 0) return base::Cannot("make room for", path);
  }
  if (is_new) {
    memcpy(header.magic, kMagic, sizeof(kMagic));
    header.version = kVersion;
    header.account_bytes = sizeof(Account);
    header.account_count = Ledger::kAccounts;
    const bool is_written =
        pwrite(fd, &header, sizeof(header), 0) == sizeof(header) &&
        fsync(fd) == 0;
    return is_written ? absl::OkStatus() : base::Cannot("write", path);
  }
  const bool is_ours =
      st.st_size == kBytes &&
      pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
      memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 &&
      header.version == kVersion && header.account_bytes == sizeof(Account) &&
      header.account_count == Ledger::kAccounts;
  if (is_ours) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is no ledger of this version; move it away to count from 0"));
}

}  // namespace

absl::optional<absl::Duration> Account::TakeRequest(uint32_t per_minute,
                                                    absl::Time now) {
  constexpr uint64_t kMinuteNs = 60'000'000'000;
  const uint64_t each_ns = kMinuteNs / per_minute;
  const auto now_ns = static_cast<uint64_t>(absl::ToUnixNanos(now));
  uint64_t was = next_ns.load(std::memory_order_relaxed);
  for (;;) {
    // A time so far ahead means that a clock was set back; the client then gets
    // its next request.
    const bool is_wrong = was > now_ns + per_minute * each_ns;
    const uint64_t next =
        is_wrong ? now_ns + (per_minute - 1) * each_ns : std::max(was, now_ns);
    const uint64_t ahead = next - now_ns;
    if (ahead > (per_minute - 1) * each_ns) {
      return absl::Nanoseconds(ahead - (per_minute - 1) * each_ns);
    }
    if (next_ns.compare_exchange_weak(was, next + each_ns,
                                      std::memory_order_relaxed)) {
      return absl::nullopt;
    }
  }
}

uint64_t Account::SpentOn(absl::Time now) const {
  const uint64_t word = day.load(std::memory_order_relaxed);
  const uint64_t written = word >> kDayBits;
  return written == Later(written, DayOf(now)) ? word & kTokensMask : 0;
}

void Account::Charge(int64_t prompt, int64_t output, absl::Time now) {
  uint64_t was = day.load(std::memory_order_relaxed);
  uint64_t is = 0;
  do {
    const uint64_t written = was >> kDayBits;
    const uint64_t counts = Later(written, DayOf(now));
    const uint64_t there = counts == written ? was & kTokensMask : 0;
    is =
        counts << kDayBits | std::min(Sum(there, prompt + output), kTokensMask);
  } while (!day.compare_exchange_weak(was, is, std::memory_order_relaxed));
  Add(&prompt_tokens, prompt);
  Add(&output_tokens, output);
}

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return base::Cannot("open", path);
  const absl::Status s = SetUp(fd, path);
  if (!s.ok()) {
    close(fd);
    return s;
  }
  void* const mapped =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    const absl::Status failed = base::Cannot("map", path);
    close(fd);
    return failed;
  }
  return std::unique_ptr<Ledger>(new Ledger(path, fd, mapped));
}

Ledger::~Ledger() {
  munmap(mapped_, kBytes);
  close(fd_);
}

Account* Ledger::accounts() const {
  return reinterpret_cast<Account*>(static_cast<char*>(mapped_) +
                                    sizeof(LedgerHeader));
}

absl::StatusOr<Account*> Ledger::AccountOf(absl::string_view name) {
  const FileLock lock(fd_);
  for (Account* a = accounts(); a != accounts() + kAccounts; ++a) {
    if (absl::string_view(a->name, strnlen(a->name, sizeof(a->name))) == name) {
      return a;
    }
    if (a->name[0] != 0) continue;
    memcpy(a->name, name.data(), std::min(name.size(), sizeof(a->name) - 1));
    return a;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      path_, " has accounts of ", kAccounts, " names and none left for ", name,
      "; move it away to count from 0"));
}

}  // namespace fineserve::proxy
