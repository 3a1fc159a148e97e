// emucuda-linger: performs the work that a dead client's device had yet to do
// (linger_journal.h). Only libcuda.so.1 starts it.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tools/lab/device/linger/linger_journal.h"
#include "tools/lab/device/machine/control_file.h"
#include "tools/lab/device/machine/driver_lock.h"

namespace fineserve::emucuda {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Waits for the end of the pipe, through which nothing is sent: the end comes
// when the last process that holds the client's end is dead.
void AwaitDeath() {
  char byte;
  while (read(kLingerPipe, &byte, 1) < 0 && errno == EINTR) {
  }
}

// Returns the queued entries in order of submission.
std::vector<const LingerEntry*> Queued(const LingerJournal& journal) {
  std::vector<const LingerEntry*> queued;
  for (const LingerEntry& entry : journal.entries) {
    if (entry.sequence.load(std::memory_order_acquire) != 0) {
      queued.push_back(&entry);
    }
  }
  std::sort(queued.begin(), queued.end(),
            [](const LingerEntry* a, const LingerEntry* b) {
              return a->sequence.load() < b->sequence.load();
            });
  return queued;
}

// Returns the signals that end the lingering early, so that a test need not
// guess how long to wait.
sigset_t EarlyEnd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

void Sleep(uint32_t milliseconds) {
  const timespec limit = {static_cast<time_t>(milliseconds / 1000),
                          static_cast<long>(milliseconds % 1000) * 1'000'000};
  const sigset_t early = EarlyEnd();
  while (sigtimedwait(&early, nullptr, &limit) < 0 && errno == EINTR) {
  }
}

// Sleeps for as long as freeing the client's memory takes, holding the driver's
// lock, so that every other process waits, too. The memory becomes free when
// this process ends.
void TearDown(const LingerJournal& journal) {
  const uint64_t us_per_gib =
      journal.teardown_us_per_gib.load(std::memory_order_relaxed);
  if (us_per_gib == 0) return;
  uint64_t bytes = 0;
  for (int fd = kLingerFirstDevice + 1; fcntl(fd, F_GETFD) >= 0; fd += 2) {
    bytes += ControlFile::BytesOf(fd, journal.client);
  }
  TakeDriverLock(kLingerLock);
  Sleep(static_cast<uint32_t>(std::min<uint64_t>(
      (bytes >> 20) * us_per_gib / (1024 * 1000), UINT32_MAX)));
}

void Run(const LingerEntry& entry) {
  const int memory = kLingerFirstDevice + 2 * static_cast<int>(entry.device);
  std::vector<char> buffer(std::min<uint64_t>(entry.bytes, kBufferBytes));
  for (size_t i = 0; entry.width != 0 && i < buffer.size(); i += entry.width) {
    memcpy(&buffer[i], &entry.value,
           std::min<size_t>(entry.width, buffer.size() - i));
  }
  for (uint64_t done = 0; done < entry.bytes;) {
    const size_t piece = std::min<uint64_t>(entry.bytes - done, buffer.size());
    if (entry.width == 0 && pread(memory, buffer.data(), piece,
                                  static_cast<off_t>(entry.from + done)) <
                                static_cast<ssize_t>(piece)) {
      return;
    }
    const ssize_t wrote = pwrite(memory, buffer.data(), piece,
                                 static_cast<off_t>(entry.to + done));
    if (wrote <= 0) return;  // there is no client left to report to
    done += static_cast<uint64_t>(wrote);
  }
}

int Main() {
  const sigset_t early = EarlyEnd();
  sigprocmask(SIG_BLOCK, &early, nullptr);
  // Continue in a child, to detach from the client, which waits only for the
  // process that it started.
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child > 0) return 0;
  setsid();
  const void* place = mmap(nullptr, sizeof(LingerJournal), PROT_READ,
                           MAP_SHARED, kLingerJournal, 0);
  if (place == MAP_FAILED) return 1;
  const auto& journal = *static_cast<const LingerJournal*>(place);
  AwaitDeath();
  const uint32_t milliseconds =
      journal.linger_ms.load(std::memory_order_relaxed);
  const auto queued = Queued(journal);
  if (milliseconds > 0 && !queued.empty()) {
    Sleep(milliseconds);
    for (const LingerEntry* entry : queued) Run(*entry);
  }
  TearDown(journal);
  return 0;
}

}  // namespace
}  // namespace fineserve::emucuda

int main() { return fineserve::emucuda::Main(); }
