#ifndef SHIM_HOST_CHECKED_DESCRIPTOR_H_
#define SHIM_HOST_CHECKED_DESCRIPTOR_H_

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace fineserve::shim {

// A descriptor in another program's process. The host may close every
// descriptor it finds and open files of its own under the same numbers, so each
// use first compares the file behind the number with the one that was adopted.
//
// Adopt and Close must not run concurrently; a fork handler in the child may
// call Close whatever other threads did in the parent. Get is safe on any
// thread. Trivially destroyed: it closes nothing by itself.
class CheckedDescriptor {
 public:
  constexpr CheckedDescriptor() = default;

  // Takes ownership of `fd` (≥ 0).
  void Adopt(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return;
    device_.store(st.st_dev, std::memory_order_relaxed);
    inode_.store(st.st_ino, std::memory_order_relaxed);
    // Release: publishes device and inode. Pairs with the acquire in Get.
    fd_.store(fd, std::memory_order_release);
  }

  // Returns the number, or -1 if there is none or it now denotes another file.
  int Get() const {
    const int fd = fd_.load(std::memory_order_acquire);  // pairs with Adopt
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return -1;
    const bool same = st.st_dev == device_.load(std::memory_order_relaxed) &&
                      st.st_ino == inode_.load(std::memory_order_relaxed);
    return same ? fd : -1;
  }

  // Closes the descriptor if it is still ours, and forgets it in any case.
  void Close() {
    const int fd = Get();
    fd_.store(-1, std::memory_order_relaxed);
    if (fd >= 0) close(fd);
  }

 private:
  std::atomic<int> fd_{-1};
  std::atomic<dev_t> device_{0};
  std::atomic<ino_t> inode_{0};
};

}  // namespace fineserve::shim

#endif  // SHIM_HOST_CHECKED_DESCRIPTOR_H_
