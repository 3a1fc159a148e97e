#ifndef DAEMON_BASE_HTTP_RANDOM_HEX_H_
#define DAEMON_BASE_HTTP_RANDOM_HEX_H_

#include <array>
#include <cstddef>
#include <string>

namespace fineserve::proxy {

// Random names in hexadecimal digits. Confined to a thread.
class RandomHex {
 public:
  // Returns `bytes` random bytes (1 to 16), written as two digits each.
  std::string Next(size_t bytes);

 private:
  // The kernel's random bytes, fetched for many names at a time.
  std::array<unsigned char, 512> random_;
  size_t used_ = random_.size();
};

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_RANDOM_HEX_H_
