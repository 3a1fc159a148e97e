#ifndef SHIM_EVICTION_SHARER_H_
#define SHIM_EVICTION_SHARER_H_

#include <atomic>

#include "kernels/driver/entry_points.h"
#include "shim/host/checked_descriptor.h"
#include "shim/host/original.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/link/seqpacket.h"
#include "shim/redirect/redirector.h"

namespace fineserve::shim {

// Makes handles by which other processes open this one's resident memory, as by
// CUDA's legacy IPC, which the driver refuses for mapped memory. A thread, from
// the first handle on, answers those that open and close it
// (daemon/contract/abi/share_messages.h), and looks twice a second whether one
// of them has ended. It speaks with processes of the same user only.
//
// Thread-safe. Constant-initialised, trivially destroyed. A forked child has no
// such thread, so its handles are not answered.
class Sharer {
 public:
  // Must outlive this object.
  constexpr explicit Sharer(Redirector* redirector) : redirector_(redirector) {}

  // Starts to listen. False if it cannot.
  bool Start(const Driver& real);
  // The address at which it listens, after Start.
  abi::ShareAddress Address() const;

  // Answers cuIpcGetMemHandle.
  driver::CUresult MakeHandle(const Driver& real,
                              driver::CUipcMemHandle* handle,
                              driver::CUdeviceptr address,
                              const Original& original);
  // Called at the program's exit: the thread makes no driver calls after it.
  void Stop();
  // For a forked child: takes no lock.
  void AbandonInChild();

 private:
  static void* Run(void* sharer);
  void Serve();
  void Answer(int fd);
  void Open(int fd, const ResidentMemory::Borrower& peer,
            const abi::OpenRequest& request);
  void Close(int fd, const ResidentMemory::Borrower& peer,
             const abi::CloseRequest& request);
  void Lend(int fd, const ResidentMemory::Borrower& peer,
            const abi::ReadRequest& request);
  void NoteRest(int fd, const ResidentMemory::Borrower& peer,
                const abi::RestRequest& request);

  Redirector* const redirector_;
  const Driver* real_ = nullptr;  // set before the thread starts
  CheckedDescriptor socket_;      // on which it listens
  SocketName name_ = {};          // set before the thread starts
  Mutex mutex_;
  bool started_ FINESERVE_GUARDED_BY(mutex_) = false;
  Mutex turn_;  // held while it answers
  bool stopped_ FINESERVE_GUARDED_BY(turn_) = false;
};

}  // namespace fineserve::shim

#endif  // SHIM_EVICTION_SHARER_H_
