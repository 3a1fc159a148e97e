#include "daemon/fineserved/store/store_thread.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/log/log.h"
#include "daemon/base/quiet_thread.h"

namespace fineserve::store {
namespace {

driver::Descriptor NewEvent() {
  return driver::Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

// The result of work that keeps nothing.
absl::StatusOr<Kept> KeptNothing(const absl::Status& s) {
  if (!s.ok()) return s;
  return Kept();
}

}  // namespace

StoreThread::StoreThread(const driver::Driver& driver, driver::CUdevice device)
    : store_(driver, device), ready_(NewEvent()), wake_(NewEvent()) {
  thread_ = base::QuietThread([this] { Run(); });
}

StoreThread::~StoreThread() {
  // Release: pairs with the acquire in Run.
  stopping_.store(true, std::memory_order_release);
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void StoreThread::SetOthers(Store::AskOthers ask) {
  Post([ask = std::move(ask)](Store* store) { store->SetOthers(ask); });
}

void StoreThread::SetLimit(uint64_t bytes) {
  Post([bytes](Store* store) { store->SetLimit(bytes); });
}

void StoreThread::Prepare() {
  Post([](Store* store) {
    const absl::Status s = store->Prepare();
    if (!s.ok()) {
      log::Warning("engines may not be able to leave the GPU: {}",
                   std::string(s.message()));
    }
  });
}

void StoreThread::Keep(HolderId holder, uint32_t order,
                       std::vector<Handed> memory) {
  // A std::function is copied.
  const auto handed = std::make_shared<std::vector<Handed>>(std::move(memory));
  PostWork([this, holder, order, handed](Store* store) {
    Finish(holder, order, Work::kKeep, store->Keep(holder, std::move(*handed)));
  });
}

void StoreThread::Fill(HolderId holder, uint32_t order,
                       std::vector<Handed> memory, uint32_t total,
                       bool is_last) {
  const auto handed = std::make_shared<std::vector<Handed>>(std::move(memory));
  PostWork([this, holder, order, handed, total, is_last](Store* store) {
    store->Fill(holder, order, std::move(*handed));
    if (!is_last) return;
    Finish(holder, order, Work::kFill,
           KeptNothing(store->FinishFill(holder, order, total)));
  });
}

bool StoreThread::Carry(HolderId asker, uint32_t order, Transfer whole,
                        uint64_t offset, uint64_t bytes) {
  if (works_.load(std::memory_order_relaxed) != 0) return false;
  const auto transfer = std::make_shared<Transfer>(std::move(whole));
  Post([this, asker, order, transfer, offset, bytes](Store* store) {
    const absl::Status s = store->Carry(*transfer, offset, bytes);
    *transfer = {};  // first: the asker counts on the memory
    Finish(asker, order, Work::kCarry, KeptNothing(s));
  });
  return true;
}

void StoreThread::Compare(HolderId holder, uint32_t order,
                          std::vector<Handed> memory) {
  const auto handed = std::make_shared<std::vector<Handed>>(std::move(memory));
  PostWork([this, holder, order, handed](Store* store) {
    const absl::Status s = store->Compare(*handed);
    handed->clear();
    Finish(holder, order, Work::kCompare, KeptNothing(s));
  });
}

void StoreThread::Finish(HolderId holder, uint32_t order, Work of,
                         absl::StatusOr<Kept> kept) {
  done_.Put({holder, order, of, std::move(kept)});
  eventfd_write(ready_.get(), 1);
}

void StoreThread::DropFill(HolderId holder, uint32_t order) {
  Post([holder, order](Store* store) { store->DropFill(holder, order); });
}

void StoreThread::Commit(HolderId holder) {
  Post([holder](Store* store) { store->Commit(holder); });
}

void StoreThread::Cancel(HolderId holder) {
  Post([holder](Store* store) { store->Cancel(holder); });
}

void StoreThread::Return(HolderId holder) {
  Post([holder](Store* store) { store->Return(holder); });
}

void StoreThread::Forget(HolderId holder) {
  Post([holder](Store* store) { store->Forget(holder); });
}

void StoreThread::Adopt(HolderId holder, bool is_out,
                        driver::Descriptor inventory,
                        std::vector<driver::Descriptor> files) {
  const auto list = std::make_shared<driver::Descriptor>(std::move(inventory));
  const auto of =
      std::make_shared<std::vector<driver::Descriptor>>(std::move(files));
  Post([holder, is_out, list, of](Store* store) {
    const absl::Status s =
        store->Adopt(holder, is_out, std::move(*list), std::move(*of));
    if (s.ok()) return;
    log::Warning("what pid {} was evicted to is not taken over: {}",
                 static_cast<uint32_t>(holder), std::string(s.message()));
  });
}

std::vector<StoreThread::Result> StoreThread::Take() {
  // Reads the event first, so that anything put in from here on makes it
  // readable again.
  eventfd_t count;
  eventfd_read(ready_.get(), &count);
  std::deque<Result> done = done_.TakeAll();
  return {std::make_move_iterator(done.begin()),
          std::make_move_iterator(done.end())};
}

metrics::StoreFigures StoreThread::figures() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return figures_;
}

std::shared_ptr<const Offer> StoreThread::offer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return offer_;
}

void StoreThread::Post(Call call) {
  posted_.Put(std::move(call));
  eventfd_write(wake_.get(), 1);
}

void StoreThread::PostWork(Call call) {
  works_.fetch_add(1, std::memory_order_relaxed);
  Post([this, call = std::move(call)](Store* store) {
    call(store);
    works_.fetch_sub(1, std::memory_order_relaxed);
  });
}

void StoreThread::Run() {
  for (;;) {
    pollfd wake = {wake_.get(), POLLIN, 0};
    poll(&wake, 1, store_.Tend());
    // Reads the event first, so that anything posted from here on makes it
    // readable again.
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
    for (const Call& call : posted_.TakeAll()) {
      if (stopping_.load(std::memory_order_acquire)) return;
      call(&store_);
      std::shared_ptr<const Offer> offer = store_.offer();
      const std::lock_guard<std::mutex> lock(mutex_);
      figures_ = store_.figures();
      offer_ = std::move(offer);
    }
    if (stopping_.load(std::memory_order_acquire)) return;
  }
}

}  // namespace fineserve::store
