#ifndef DAEMON_PROXY_HTTP_BODY_BUDGET_H_
#define DAEMON_PROXY_HTTP_BODY_BUDGET_H_

#include <cstdint>

namespace fineserve::proxy {

// Limit on the bytes that the bodies of all requests may hold together: those
// whose length is known from their header on, others as they grow. Only a
// body's bytes beyond kFreeBytes count, so that clients that send large ones
// take nothing from those that send prompts. Confined to a thread.
class BodyBudget {
 public:
  static constexpr uint64_t kFreeBytes = 64 << 10;

  explicit BodyBudget(uint64_t bytes) : left_bytes_(bytes) {}

  // A body that had `before` bytes has `after`. False, and nothing changes, if
  // the budget is not enough.
  bool Change(uint64_t before, uint64_t after) {
    const uint64_t had = Counted(before), has = Counted(after);
    if (has > had && has - had > left_bytes_) return false;
    left_bytes_ = left_bytes_ + had - has;
    return true;
  }

  uint64_t left_bytes() const { return left_bytes_; }

 private:
  static uint64_t Counted(uint64_t bytes) {
    return bytes > kFreeBytes ? bytes - kFreeBytes : 0;
  }

  uint64_t left_bytes_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_HTTP_BODY_BUDGET_H_
