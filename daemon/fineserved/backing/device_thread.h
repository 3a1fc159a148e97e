#ifndef DAEMON_FINESERVED_BACKING_DEVICE_THREAD_H_
#define DAEMON_FINESERVED_BACKING_DEVICE_THREAD_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "daemon/fineserved/backing/backing.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::backing {

// A queue from several threads to one thread, which takes all items in order.
// It is lock-free: with a lock, the taker would have to wait for a giver that
// was descheduled while it held the lock. Any thread may call Put; only one
// thread at a time may call TakeAll.
template <typename T>
class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() { TakeAll(); }

  void Put(T item) {
    auto* letter = new Letter{std::move(item), nullptr};
    letter->before = last_.load(std::memory_order_relaxed);
    // Release: publishes the letter. Pairs with the acquire in TakeAll. Since
    // TakeAll takes all letters at once, a reused address between the load and
    // the exchange does no harm (ABA).
    while (!last_.compare_exchange_weak(letter->before, letter,
                                        std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
  }

  // Oldest first.
  std::deque<T> TakeAll() {
    std::deque<T> items;
    Letter* letter = last_.exchange(nullptr, std::memory_order_acquire);
    while (letter != nullptr) {
      items.push_front(std::move(letter->item));
      delete std::exchange(letter, letter->before);
    }
    return items;
  }

 private:
  struct Letter {
    T item;
    Letter* before;
  };

  std::atomic<Letter*> last_{nullptr};
};

// Result of one call of a DeviceQueue.
struct Made {
  slab::SlabId slab;
  absl::Status status;
};
struct Zeroed {
  slab::SlabId slab;
  absl::Status status;  // an error: the fill did not start
};
struct Listed {
  absl::StatusOr<std::vector<pid_t>> pids;
  uint64_t memory_errors;  // read before them
};
struct Measured {
  absl::StatusOr<uint64_t> free_bytes;
};
struct Exported {
  uint64_t ticket;
  std::vector<driver::Descriptor> granules;  // up to the first that failed
  absl::Status status;                       // of the one that failed
};
// This process has lost the device; no further call completes.
struct Lost {
  absl::Status why;
};
using Completion =
    absl::variant<Made, Zeroed, Listed, Measured, Exported, Lost>;

// The calls that a pool makes on its backing, in order. None of them blocks, so
// a slow driver delays only the pool's own work (the teardown of a context
// blocks NVML and the driver for seconds). See Backing for what the calls do.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual void Make(slab::SlabId slab) = 0;  // → Made
  virtual void Fill(slab::SlabId slab) = 0;  // → Zeroed
  virtual void Drop(slab::SlabId slab) = 0;
  // `awaited`: the dead processes whose end is awaited. → Listed
  virtual void ListProcesses(std::vector<pid_t> awaited) = 0;
  // A process has joined.
  virtual void NoteProcesses() = 0;
  virtual void MeasureFree() = 0;  // → Measured
  // Exports these granules; `ticket` identifies the request. → Exported
  virtual void Export(uint64_t ticket, std::vector<uint32_t> granules) = 0;

  // Returns the results of the calls since the last Take.
  virtual std::vector<Completion> Take() = 0;
};

// Makes the calls at once, on the caller's thread: for tests, and for the
// thread of a DeviceThread. Not thread-safe.
class InlineQueue : public DeviceQueue {
 public:
  explicit InlineQueue(Backing* backing) : backing_(backing) {}

  void Make(slab::SlabId slab) override;
  void Fill(slab::SlabId slab) override;
  void Drop(slab::SlabId slab) override;
  void ListProcesses(std::vector<pid_t> awaited) override;
  void NoteProcesses() override { backing_->NoteProcesses(); }
  void MeasureFree() override;
  void Export(uint64_t ticket, std::vector<uint32_t> granules) override;
  std::vector<Completion> Take() override;
  // True if fills are under way, so that Take may return something although no
  // call was made.
  bool filling() const { return filling_ > 0; }

 private:
  Backing* const backing_;
  std::vector<Completion> done_;
  uint32_t filling_ = 0;
};

// Makes the calls on its own threads, which alone use the backing while this
// object lives: one thread for the driver, and one to list processes, because
// NVML blocks for seconds while the driver tears a process down. The caller
// shares no lock with these threads, so it waits for neither. The destructor
// lets the calls under way end and drops calls that have not begun. One thread
// makes the calls; any thread may wait for the descriptor.
class DeviceThread final : public DeviceQueue {
 public:
  explicit DeviceThread(Backing* backing);
  ~DeviceThread() override;

  void Make(slab::SlabId slab) override;
  void Fill(slab::SlabId slab) override;
  void Drop(slab::SlabId slab) override;
  void ListProcesses(std::vector<pid_t> awaited) override;
  void NoteProcesses() override;
  void MeasureFree() override;
  void Export(uint64_t ticket, std::vector<uint32_t> granules) override;
  std::vector<Completion> Take() override;

  // Readable while Take has something to return.
  int descriptor() const { return ready_.get(); }

 private:
  using Call = std::function<void()>;
  struct Lane {
    Mailbox<Call> posted;
    driver::Descriptor wake;  // an eventfd: something was posted, or it stops
    std::deque<Call> calls;   // taken by its thread, which alone uses them
    std::thread thread;
  };

  void Post(Lane* lane, Call call);
  // Returns the next call; null when the thread must stop or check the fills.
  Call Next(Lane* lane);
  void Finish(std::vector<Completion> done);
  void RunDriver();
  void RunLister();
  // Acquire: pairs with the release in the destructor.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  Backing* const backing_;
  InlineQueue queue_;               // the driver's thread alone uses it
  const driver::Descriptor ready_;  // an eventfd
  Mailbox<Completion> done_;
  std::atomic<bool> stopping_{false};
  Lane driver_;
  Lane lister_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_DEVICE_THREAD_H_
