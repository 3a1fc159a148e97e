#ifndef KERNELS_DRIVER_DESCRIPTOR_H_
#define KERNELS_DRIVER_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace fineserve::driver {

// Owns one file descriptor: closed on destruction. Movable, not copyable; not
// thread-safe. Uses nothing but libc, so that the shim may hold one.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes ownership of `fd`; a negative value means none.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    const int old = std::exchange(fd_, fd);
    if (old >= 0) close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_DESCRIPTOR_H_
