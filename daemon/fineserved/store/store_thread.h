#ifndef DAEMON_FINESERVED_STORE_STORE_THREAD_H_
#define DAEMON_FINESERVED_STORE_STORE_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/fineserved/backing/device_thread.h"
#include "daemon/fineserved/store/store.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::store {

// A store on a separate thread, so that its copies delay nothing else. The
// calls are carried out in order. The destructor lets the call under way end
// and drops calls that have not begun. One thread calls.
class StoreThread {
 public:
  enum class Work { kKeep, kFill, kCompare, kCarry };
  // The result of a Keep or a Compare, or of an order's Fills.
  struct Result {
    HolderId holder;
    uint32_t order;  // as it was given
    Work of;
    absl::StatusOr<Kept> kept;  // empty unless kKeep, or why it failed
  };

  StoreThread(const driver::Driver& driver, driver::CUdevice device);
  ~StoreThread();

  // `ask` is called on the store's thread.
  void SetOthers(Store::AskOthers ask);
  void SetLimit(uint64_t bytes);
  void Prepare();
  void Keep(HolderId holder, uint32_t order, std::vector<Handed> memory);
  // Fills a part of what an order brings back; there is one result, after the
  // last part.
  void Fill(HolderId holder, uint32_t order, std::vector<Handed> memory,
            uint32_t total, bool is_last);
  // Copies for another daemon (Store::Carry). False, with nothing done, if this
  // daemon's own engines are moving.
  bool Carry(HolderId asker, uint32_t order, Transfer whole, uint64_t offset,
             uint64_t bytes);
  // Compares pairs of handed memory (Store::Compare).
  void Compare(HolderId holder, uint32_t order, std::vector<Handed> memory);
  void DropFill(HolderId holder, uint32_t order);
  void Commit(HolderId holder);
  void Cancel(HolderId holder);
  void Return(HolderId holder);
  void Forget(HolderId holder);
  void Adopt(HolderId holder, bool is_out, driver::Descriptor inventory,
             std::vector<driver::Descriptor> files);

  // Readable while Take has something to return.
  int descriptor() const { return ready_.get(); }
  std::vector<Result> Take();
  // Returns the figures as of the last call that has ended.
  metrics::StoreFigures figures() const;
  // The offer for other daemons as of the last call that has ended; null if
  // there is none.
  std::shared_ptr<const Offer> offer() const;

 private:
  using Call = std::function<void(Store*)>;
  void Post(Call call);
  // Like Post, for work of this daemon's own engines.
  void PostWork(Call call);
  // Gives the result to Take, and wakes its thread.
  void Finish(HolderId holder, uint32_t order, Work of,
              absl::StatusOr<Kept> kept);
  void Run();

  Store store_;  // the thread alone uses it
  const driver::Descriptor ready_;
  const driver::Descriptor wake_;
  backing::Mailbox<Call> posted_;
  backing::Mailbox<Result> done_;
  std::atomic<bool> stopping_{false};
  // Works that were posted and have not ended. Relaxed: an estimate.
  std::atomic<int> works_{0};
  mutable std::mutex mutex_;
  metrics::StoreFigures figures_;       // under mutex_
  std::shared_ptr<const Offer> offer_;  // likewise
  std::thread thread_;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_STORE_THREAD_H_
