#ifndef DAEMON_CONTRACT_ABI_SEALED_MEMFD_H_
#define DAEMON_CONTRACT_ABI_SEALED_MEMFD_H_

#include <cstddef>

#include "kernels/driver/descriptor.h"

namespace fineserve::abi {

// Memory that one process makes and others map: a memfd of fixed size, mapped
// here. Its size is sealed from the start, so no access to a mapping of it can
// fault. Owns descriptor and mapping; movable, not copyable. libc only. Not
// thread-safe; the caller orders the writes through base().
class SealedMemfd {
 public:
  // Creates `bytes` zeros. Not valid, with errno set, if the kernel refuses.
  // The name is for people (/proc/PID/maps) and for FindHolders.
  static SealedMemfd Create(const char* name, size_t bytes);
  // Maps all of a memfd that another process created. Not valid, with errno
  // set, unless it is a memfd that is sealed against resizing and open for
  // writing.
  static SealedMemfd Adopt(driver::Descriptor made);

  SealedMemfd() = default;
  SealedMemfd(SealedMemfd&& other) noexcept;
  SealedMemfd& operator=(SealedMemfd&& other) noexcept;
  ~SealedMemfd();

  bool valid() const { return base_ != nullptr; }
  int descriptor() const { return descriptor_.get(); }
  void* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // Returns a new descriptor that does not allow writing. Not valid, with errno
  // set, if the kernel refuses.
  driver::Descriptor ReadOnly() const;

  // Keeps every process from mapping it writable from now on, even through
  // /proc; existing mappings stay writable. No seal can be added after this.
  // Returns false, with errno set, if the kernel refuses.
  bool SealAgainstWriters() const;
  // Only forbids further seals.
  bool SealForGood() const;

 private:
  driver::Descriptor descriptor_;
  void* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_SEALED_MEMFD_H_
