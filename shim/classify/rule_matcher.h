#ifndef SHIM_CLASSIFY_RULE_MATCHER_H_
#define SHIM_CLASSIFY_RULE_MATCHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/rule.h"
#include "shim/classify/code_names.h"
#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// True if the whole of `text` matches one of the alternatives in `pattern`, as
// daemon/contract/abi/rule.h defines them. Both end with NUL. Allocates
// nothing; time is at most |pattern| × |text|.
bool Matches(const char* pattern, const char* text);

// The rules' verdict on one allocation.
struct RuleMatch {
  bool found = false;
  bool kv = false;
  char name[abi::kRuleNameBytes] = {};
  uint16_t unnamed_frames = 0;  // which no rule could match
};

// Recognises KV by native frames. Names are looked up once per instruction
// pointer; only the frames of rules that a name matches are kept, so a stack
// that was seen before costs one table look-up per frame.
//
// Thread-safe. The lock is never held while names are looked up.
// Constant-initialised and trivially destroyed. In a forked child of a process
// that had rules, only empty() may be called.
class RuleMatcher {
 public:
  constexpr RuleMatcher() = default;

  // Replaces all rules. Leaves out malformed rules, and returns false if there
  // were any.
  bool Set(const abi::Rule* rules, uint32_t count);
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Finds the first rule that matches an allocation of `bytes` from this stack
  // of the calling thread. `ips` are return addresses, innermost first; only
  // the first kNamedFrames are looked at. Finds nothing while the rules are
  // being replaced or if memory is short. Keeps errno.
  RuleMatch Match(const uint64_t* ips, size_t count, uint64_t bytes);

 private:
  // Cached facts about the code before one return address.
  struct Known {
    uint64_t ip = 0;      // 0 if the place is free
    uint64_t frames = 0;  // one bit for each frame of a rule that it matches
    bool named = false;
  };
  static constexpr size_t kPlaces = 1024;  // heuristic: 24 KiB
  static constexpr size_t kProbes = 8;

  bool Look(const uint64_t* ips, size_t count, uint64_t unloads, Known* out)
      FINESERVE_REQUIRES(mutex_);
  RuleMatch Learn(const uint64_t* ips, size_t count, uint64_t bytes);
  Known Judge(uint64_t ip, const CodeName& name) const
      FINESERVE_REQUIRES(mutex_);
  void Keep(const Known& known) FINESERVE_REQUIRES(mutex_);
  Known* Place(uint64_t ip) FINESERVE_REQUIRES(mutex_);
  RuleMatch Decide(const Known* stack, size_t count, uint64_t bytes) const
      FINESERVE_REQUIRES(mutex_);
  void Forget() FINESERVE_REQUIRES(mutex_);

  std::atomic<uint32_t> count_{0};
  Mutex mutex_;
  uint64_t generation_ FINESERVE_GUARDED_BY(mutex_) = 0;  // of rules_
  uint64_t unloads_ FINESERVE_GUARDED_BY(mutex_) = 0;  // when known_ was filled
  abi::Rule rules_[abi::kRuleCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  Known known_[kPlaces] FINESERVE_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_RULE_MATCHER_H_
