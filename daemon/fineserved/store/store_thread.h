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

// A store on a thread of its own, so that its copies hold up nothing else. The
// calls are carried out in order. The destructor lets the call under way end
// and drops those that have not begun. One thread calls.
class StoreThread {
 public:
  enum class Work { kKeep, kFill, kCompare, kCarry };
  // The result of a Keep or a Compare, or of the Fills of an order.
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
  // Fills some of what an order brings back; there is one result, after the
  // last of them.
  void Fill(HolderId holder, uint32_t order, std::vector<Handed> memory,
            uint32_t total, bool is_last);
  // Carries for another daemon (Store::Carry). False if this daemon's own
  // engines move: none of it is done.
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
  // As of the last call that has ended.
  metrics::StoreFigures figures() const;
  // For other daemons, as of then, too; null: there is nothing.
  std::shared_ptr<const Offer> offer() const;

 private:
  using Call = std::function<void(Store*)>;
  void Post(Call call);
  // The same for work of this daemon's own engines.
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
  // Posted, and not ended. Relaxed: an estimate.
  std::atomic<int> works_{0};
  mutable std::mutex mutex_;
  metrics::StoreFigures figures_;       // under mutex_
  std::shared_ptr<const Offer> offer_;  // likewise
  std::thread thread_;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_STORE_THREAD_H_
