#ifndef DAEMON_CONTRACT_ABI_HEADER_COPY_H_
#define DAEMON_CONTRACT_ABI_HEADER_COPY_H_

// Helpers for readers of shared memory: they copy bytes that another process
// may be writing, and then check the copy.

#include <atomic>
#include <cstdint>

namespace fineserve::abi {

// Far above the 8,192 handles that a GPU's pool may have (design note 0008): it
// only bounds what a hostile file can make us allocate.
inline constexpr uint32_t kMostSlabs = 1 << 20;

// A private copy of a header's bytes, which does not change.
template <typename Header>
struct HeaderCopy {
  alignas(8) unsigned char bytes[sizeof(Header)];
  const Header& operator*() const {
    return *reinterpret_cast<const Header*>(bytes);
  }
  const Header* operator->() const { return &**this; }
};

inline uint64_t Get(const std::atomic<uint64_t>& word) {
  return word.load(std::memory_order_relaxed);
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_HEADER_COPY_H_
