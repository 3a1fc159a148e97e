#ifndef TOOLS_EMUCUDA_DESCRIPTOR_H_
#define TOOLS_EMUCUDA_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace fineserve::emucuda {

// Owns one file descriptor. Move-only; not thread-safe.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Take()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) Reset(other.Take());
    return *this;
  }
  ~Descriptor() { Reset(-1); }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Take() { return std::exchange(fd_, -1); }

 private:
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

  int fd_ = -1;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_DESCRIPTOR_H_
