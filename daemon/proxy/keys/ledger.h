#ifndef DAEMON_PROXY_KEYS_LEDGER_H_
#define DAEMON_PROXY_KEYS_LEDGER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace fineserve::proxy {

// One client's account, in the ledger's file. Any thread of any process that
// has the file mapped may change it, and may be killed at any instruction.
// Totals and the day are charged one after the other, so if a process dies
// between the two, they differ by one event of an answer.
struct Account {
  char name[64];                   // with its zero; empty: the account is free
  std::atomic<uint64_t> requests;  // that engines got
  std::atomic<uint64_t> prompt_tokens;
  std::atomic<uint64_t> output_tokens;
  // Day of UTC since 1970 (24 bits) | tokens charged on it (40).
  std::atomic<uint64_t> day;
  // UNIX time in ns before which a client that keeps exactly to its rate would
  // not send its next request.
  std::atomic<uint64_t> next_ns;
  uint64_t reserved[3];

  // Takes one request out of `per_minute` (more than 0), all of which may come
  // at once. If there is none left, returns the time until one can be taken.
  // This is the generic cell rate algorithm (ITU-T I.371).
  absl::optional<absl::Duration> TakeRequest(uint32_t per_minute,
                                             absl::Time now);

  uint64_t SpentOn(absl::Time now) const;
  // Adds to the day and the totals. Negative numbers give tokens back, but
  // never more than there are. A new day starts from 0; a clock that is set
  // back by less than a day does not begin a day twice.
  void Charge(int64_t prompt, int64_t output, absl::Time now);
};
static_assert(sizeof(Account) == 128);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The accounts of a proxy's clients, in a mapped file: each charge is an
// addition to shared memory. So a killed proxy loses no charge that it has
// made, its successor continues with the same accounts, and two proxies of one
// machine, as during an upgrade, share them. A crash of the machine loses what
// the kernel had not written back, some 30 s.
//
// Bytes: LedgerHeader (4,096), Account[kAccounts] (128 bytes each).
//
// Open and AccountOf lock the file; everything else is lock-free. Any thread.
class Ledger {
 public:
  static constexpr size_t kAccounts = 1024;

  // Creates the file (mode 0600) if there is none. Returns an error in one line
  // if the file cannot be used: no access, a full disk, or a file that is not a
  // ledger, which is left untouched.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& path);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Returns the account of this name, and makes it if there is none. It lives
  // as long as the ledger. ResourceExhausted if all accounts are taken.
  absl::StatusOr<Account*> AccountOf(absl::string_view name);

 private:
  Ledger(std::string path, int fd, void* mapped)
      : path_(std::move(path)), fd_(fd), mapped_(mapped) {}
  Account* accounts() const;

  const std::string path_;
  const int fd_;
  void* const mapped_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_KEYS_LEDGER_H_
