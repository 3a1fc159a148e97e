#ifndef DAEMON_BASE_HTTP_BYTE_BUFFER_H_
#define DAEMON_BASE_HTTP_BYTE_BUFFER_H_

#include <string.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// Bytes that were received and not yet consumed, contiguous. Grows as needed
// and frees no memory until Release. Confined to a thread.
class ByteBuffer {
 public:
  absl::string_view bytes() const { return {data_.get() + begin_, size_}; }
  bool empty() const { return size_ == 0; }

  // Returns room for `n` more bytes behind the present ones. Views of the
  // present bytes become invalid.
  char* Prepare(size_t n) {
    if (begin_ + size_ + n > capacity_) MakeRoom(n);
    return data_.get() + begin_ + size_;
  }
  // Adds the first `n` bytes of the prepared room to the buffer's bytes.
  void Commit(size_t n) { size_ += n; }
  // Forgets the first `n` bytes. Views of the other bytes stay valid.
  void Consume(size_t n) {
    size_ -= n;
    begin_ = size_ == 0 ? 0 : begin_ + n;
  }
  // Frees the memory if the buffer is empty.
  void Release() {
    if (!empty()) return;
    data_.reset();
    capacity_ = 0;
  }

 private:
  void MakeRoom(size_t n) {
    if (size_ + n > capacity_) {
      std::unique_ptr<char[]> grown(new char[size_ + n]);
      if (size_ != 0) memcpy(grown.get(), data_.get() + begin_, size_);
      data_ = std::move(grown);
      capacity_ = size_ + n;
    } else {
      memmove(data_.get(), data_.get() + begin_, size_);
    }
    begin_ = 0;
  }

  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t size_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_BYTE_BUFFER_H_
