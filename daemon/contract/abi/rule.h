#ifndef DAEMON_CONTRACT_ABI_RULE_H_
#define DAEMON_CONTRACT_ABI_RULE_H_

// A rule that recognises KV allocations by the native stack they are made
// from. The daemon reads rules from its configuration and hands each member
// those of its engine (messages.h); the shim matches.
//
// A symbol pattern is one or more alternatives separated by '|'. Each is
// compared with the whole symbol name as the ELF table has it (mangled), where
// '*' matches zero or more characters. daemon/fleet/config derives the patterns
// from what the user wrote, so that no shim has to demangle.

#include <cstdint>

namespace fineserve::abi {

// The product of rules and frames fits into one 64-bit mask.
inline constexpr uint32_t kRuleCapacity = 16;
inline constexpr uint32_t kRuleFrameCapacity = 4;
inline constexpr uint32_t kRuleNameBytes = 32;
inline constexpr uint32_t kRuleModuleBytes = 64;
inline constexpr uint32_t kPatternBytes = 192;
static_assert(kRuleCapacity * kRuleFrameCapacity <= 64);

// All text is NUL-terminated within its array.
struct Rule {
  char name[kRuleNameBytes];
  // Glob ('*') over the basename of the module that holds the innermost of the
  // named frames; if no frames are named, of the module of any frame. Empty:
  // any module.
  char module[kRuleModuleBytes];
  uint64_t min_bytes;    // of the allocation, inclusive
  uint64_t max_bytes;    // inclusive
  uint32_t kv;           // 1: what it matches is KV; 0: it is not
  uint32_t frame_count;  // ≤ kRuleFrameCapacity; 0 only with a module
  // From inner to outer; other frames may be between them.
  char frames[kRuleFrameCapacity][kPatternBytes];
};
static_assert(sizeof(Rule) == 888);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_RULE_H_
