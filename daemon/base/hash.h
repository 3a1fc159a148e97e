#ifndef DAEMON_BASE_HASH_H_
#define DAEMON_BASE_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace fineserve::base {

// FNV-1a's hash of no bytes.
inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325;

// Returns the 64-bit FNV-1a hash of `bytes` appended to the bytes that `hash`
// covers. Unlike Abseil's hash, it is the same in every process, build and
// version.
constexpr uint64_t Hash(absl::string_view bytes,
                        uint64_t hash = kHashOfNothing) {
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace fineserve::base

#endif  // DAEMON_BASE_HASH_H_
