#ifndef SHIM_LINK_FIRST_RANK_H_
#define SHIM_LINK_FIRST_RANK_H_

#include <string.h>

#include <atomic>
#include <cstdint>

#include "daemon/contract/abi/transport.h"

namespace fineserve::shim {

// The first rank of an engine on several GPUs: the daemon of its GPU moves the
// memory of all ranks (design note 0039). This process, which is a rank or runs
// the block pool, learns it by fs_kv_follow.
//
// Thread-safe, with one call of Set at a time. Constant-initialised, trivially
// destroyed.
class FirstRank {
 public:
  constexpr FirstRank() = default;

  // False if another first rank is known already.
  bool Set(const uint8_t (&gpu_uuid)[16], const char (&name)[abi::kNameBytes]) {
    if (is_known()) {
      return Is(gpu_uuid) && strncmp(name_, name, sizeof(name_)) == 0;
    }
    memcpy(gpu_uuid_, gpu_uuid, sizeof(gpu_uuid_));
    abi::CopyText(name_, name);
    // Release: pairs with the acquire in is_known.
    is_known_.store(true, std::memory_order_release);
    return true;
  }

  bool is_known() const { return is_known_.load(std::memory_order_acquire); }
  // REQUIRES: the first rank is known.
  bool Is(const uint8_t (&gpu_uuid)[16]) const {
    return memcmp(gpu_uuid_, gpu_uuid, sizeof(gpu_uuid_)) == 0;
  }
  const uint8_t (&gpu_uuid() const)[16] { return gpu_uuid_; }
  // The engine's name at the first rank's daemon.
  const char (&engine_name() const)[abi::kNameBytes] { return name_; }

 private:
  std::atomic<bool> is_known_{false};
  uint8_t gpu_uuid_[16] = {};
  char name_[abi::kNameBytes] = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_FIRST_RANK_H_
