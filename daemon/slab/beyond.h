#ifndef DAEMON_SLAB_BEYOND_H_
#define DAEMON_SLAB_BEYOND_H_

namespace fineserve::slab {

// By how much `n` exceeds `kept`; 0 if it does not. Of unsigned numbers.
template <typename T>
constexpr T Beyond(T n, T kept) {
  return n > kept ? n - kept : 0;
}

}  // namespace fineserve::slab

#endif  // DAEMON_SLAB_BEYOND_H_
