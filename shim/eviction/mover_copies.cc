// The part of Mover that has the daemon's store copy this process's memory,
// fill it and compare it.

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/contract/abi/byte_size.h"
#include "shim/eviction/mover.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {
namespace {

using abi::Seat;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUresult;

}  // namespace

void Mover::CloseKept() {
  for (CheckedDescriptor& one : kept_) one.Close();
}

// The store's answer.
void Mover::Adopt(abi::Received* received) {
  CloseKept();
  const uint32_t count = received->descriptor_count();
  for (uint32_t i = 0; i < count && i < 1 + abi::kMostStoreFiles; ++i) {
    kept_[i].Adopt(received->TakeDescriptor(i));
  }
}

// Hands descriptors of memory to the daemon, many in one message, but sends
// each message early enough for the daemon to work on it while the next
// descriptors are made.
template <typename Message>
class Mover::Batch {
 public:
  Batch(Mover* mover, uint32_t order) : mover_(mover) {
    message_ = abi::MakeMessage<Message>(0);
    message_.order = order;
  }
  ~Batch() { Clear(); }

  // True if some messages were sent, but not the last.
  bool is_open() const { return is_open_; }

  bool Add(uint32_t number, uint64_t bytes, int memory) {
    if ((message_.count == abi::kContentsPerMessage || bytes_ >= kBatchBytes) &&
        !Send(/*is_last=*/false)) {
      return false;
    }
    const int copy = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return mover_->Fail("it has too many open files");
    memory_[message_.count] = copy;
    message_.entries[message_.count++] = {number, 0, bytes};
    ++message_.total;
    bytes_ += bytes;
    return true;
  }

  // Sends the last message and takes the answer to all of the batch's messages.
  // After a failure it closes the connection, since a late answer would be
  // taken for the answer to a later batch.
  template <typename Answer>
  bool End(abi::Received* received, Answer* answer) {
    const bool sent = Send(/*is_last=*/true);
    const int fd = mover_->socket_.Get();
    bool came = false;
    do {
      came = sent && fd >= 0 && WaitReadable(fd, kCopyMs) == 0 &&
             received->ReceiveFrom(fd) == 0;
    } while (came && mover_->NoteNeed(*received));
    if (came && received->As(answer) && answer->order == message_.order &&
        abi::IsTerminated(answer->why)) {
      return true;
    }
    mover_->socket_.Close();
    return false;
  }
  void Clear() {
    for (uint32_t i = 0; i < message_.count; ++i) close(memory_[i]);
    message_.count = 0;
    bytes_ = 0;
  }

 private:
  static constexpr int kCopyMs = 120'000;  // for all, to the host or back
  static constexpr uint64_t kBatchBytes = uint64_t{64} << 20;

  bool Send(bool is_last) {
    message_.header.sequence = ++mover_->sequence_;
    message_.is_last = is_last ? 1 : 0;
    const int fd = mover_->socket_.Get();
    const bool sent =
        fd >= 0 && abi::Send(fd, message_, memory_, message_.count) == 0;
    is_open_ = (is_open_ || sent) && !is_last;
    Clear();
    return sent || mover_->Fail("the daemon is gone");
  }

  Mover* const mover_;
  Message message_;
  bool is_open_ = false;
  uint64_t bytes_ = 0;
  int memory_[abi::kContentsPerMessage];
};

// Hands memory to the daemon's store in such batches. `Base` is a Carrier.
template <typename Base, typename Message>
class Mover::Handing : public Base {
 public:
  bool Hand(uint32_t number, uint64_t bytes, int memory) final {
    return batch_.Add(number, bytes, memory);
  }

 protected:
  Handing(Mover* mover, uint32_t order) : mover_(mover), batch_(mover, order) {}
  ~Handing() = default;

  Mover* const mover_;
  Batch<Message> batch_;
};

// Has the daemon's store copy memory, and finds the copies in the inventory
// that it answers with.
class Mover::ToStore final
    : public Handing<ResidentMemory::Copier, abi::MoveContents> {
 public:
  ToStore(Mover* mover, uint32_t order) : Handing(mover, order) {}
  ~ToStore() {
    if (list_ != nullptr) munmap(list_, list_bytes_);
  }

  bool Finish() override {
    abi::Received received;
    abi::MoveCopied copied;
    if (!batch_.End(&received, &copied)) {
      return mover_->Fail("the daemon has not copied its memory");
    }
    if (copied.failed != 0) return mover_->Fail("%s", copied.why);
    if (received.descriptors_lost()) {
      return mover_->Fail("it has no descriptors left for the store's files");
    }
    mover_->Adopt(&received);
    return MapList() || mover_->Fail("the daemon sent no list of its copies");
  }

  bool Locate(uint32_t number, uint32_t* file, uint64_t* offset) override {
    const auto* const header = static_cast<abi::InventoryHeader*>(list_);
    const auto* const entries =
        reinterpret_cast<const abi::InventoryEntry*>(header + 1);
    for (uint32_t i = 0; i < header->count; ++i) {
      if (entries[i].number != number) continue;
      *file = entries[i].file;
      *offset = entries[i].offset;
      return true;
    }
    return mover_->Fail("the daemon has not copied all of its memory");
  }

 private:
  bool MapList() {
    const int fd = mover_->kept_[0].Get();
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return false;
    list_bytes_ = static_cast<size_t>(st.st_size);
    if (list_bytes_ < sizeof(abi::InventoryHeader)) return false;
    void* const base = mmap(nullptr, list_bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return false;
    list_ = base;
    const auto* const header = static_cast<abi::InventoryHeader*>(list_);
    return header->magic == abi::kInventoryMagic &&
           header->count <=
               (list_bytes_ - sizeof(*header)) / sizeof(abi::InventoryEntry);
  }

  void* list_ = nullptr;
  size_t list_bytes_ = 0;
};

// Has the daemon's store fill memory, in one attempt.
class Mover::FromStore final
    : public Handing<ResidentMemory::Carrier, abi::MoveFill> {
 public:
  FromStore(Mover* mover, uint32_t order) : Handing(mover, order) {}

  bool Finish() override {
    abi::Received received;
    abi::MoveFilled filled;
    if (!batch_.End(&received, &filled)) {
      return mover_->Fail("the daemon has not filled its memory");
    }
    mover_->lost_ = filled.result == abi::FillResult::kLost;
    return filled.result == abi::FillResult::kFilled ||
           mover_->Fail("%s", filled.why);
  }

  // Called after a failure. Once it returns, the daemon holds none of the
  // memory that it was handed.
  void Abandon() {
    batch_.Clear();
    abi::Received received;
    abi::MoveFilled ignored;
    if (batch_.is_open()) batch_.End(&received, &ignored);
  }
};

// Has the daemon compare pairs of allocations.
class Mover::Comparer final
    : public Handing<ResidentMemory::Carrier, abi::MoveCompare> {
 public:
  Comparer(Mover* mover, uint32_t order) : Handing(mover, order) {}

  bool Finish() override {
    abi::Received received;
    abi::MoveCompared compared;
    if (!batch_.End(&received, &compared)) {
      return mover_->Fail("the daemon has not compared its parameters");
    }
    return compared.differ == 0 || mover_->Fail("%s", compared.why);
  }
};

// Has the lender's parameters opened, and compared with this process's.
bool Mover::Compare(const Driver& real, uint64_t bytes, uint64_t* got) {
  Comparer comparer(this, report_.order);
  return Collect(real, bytes, &comparer, got) &&
         (*got == 0 || comparer.Finish());
}

bool Mover::MoveOut(const Driver& real) {
  if (seat_ == Seat::kPool) return true;
  report_.why[0] = '\0';
  ToStore copier(this, report_.order);
  const CUresult result = redirector_->resident()->Evict(real, &copier);
  if (result == CUDA_SUCCESS) return true;
  return report_.why[0] == '\0' &&
         Fail("its memory could not be handed over: CUDA error %d",
              static_cast<int>(result));
}

bool Mover::MoveIn(const Driver& real) {
  if (seat_ == Seat::kPool) return true;
  ResidentMemory& memory = *redirector_->resident();
  int files[abi::kMostStoreFiles];
  uint32_t count = 0;
  while (count < abi::kMostStoreFiles &&
         (files[count] = kept_[1 + count].Get()) >= 0) {
    ++count;
  }
  const uint64_t bytes = memory.sum().out_bytes;
  bool daemon_fills = socket_.Get() >= 0;
  if (bytes != 0 && count == 0 && !daemon_fills) {
    return Fail("the program has closed the store's descriptors");
  }
  const auto attempt = [&] {
    FromStore filler(this, report_.order);
    const CUresult result =
        memory.Activate(real, {files, count, daemon_fills ? &filler : nullptr},
                        [&](const Redirection& range) {
                          return redirector_->peers().Open(real, range);
                        });
    if (result != CUDA_SUCCESS) filler.Abandon();
    return result;
  };
  const auto attempt_with_room = [&] {
    report_.why[0] = '\0';
    return redirector_->TryWithRoom(bytes, attempt(), attempt);
  };
  CUresult result = attempt_with_room();
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
      daemon_fills && !lost_) {
    Warn("fineserved cannot fill its memory (%s): it does so itself",
         report_.why[0] != '\0' ? report_.why : "it cannot be handed over");
    daemon_fills = false;
    result = attempt_with_room();
  }
  if (result == CUDA_SUCCESS) return true;
  char size[abi::kByteSizeText];
  abi::FormatByteSize(bytes, size);
  report_.lacks_room = result == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
  if (report_.why[0] != '\0') return false;
  return result == CUDA_ERROR_OUT_OF_MEMORY
             ? Fail("the GPU has no room for its %s", size)
             : Fail("its memory could not be put back: CUDA error %d",
                    static_cast<int>(result));
}

}  // namespace fineserve::shim
