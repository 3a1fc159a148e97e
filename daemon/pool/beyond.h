#ifndef DAEMON_POOL_BEYOND_H_
#define DAEMON_POOL_BEYOND_H_

namespace fineserve::slab {

// Returns by how much the unsigned `n` exceeds `kept`; 0 if it does not.
template <typename T>
constexpr T Beyond(T n, T kept) {
  return n > kept ? n - kept : 0;
}

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_BEYOND_H_
