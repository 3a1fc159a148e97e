#include "shim/classify/rule_matcher.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

namespace fineserve::shim {
namespace {

bool IsEnd(char c) { return c == '\0' || c == '|'; }

// Compares with one alternative. After a mismatch only the last '*' is
// extended; extending an earlier one would gain nothing.
bool MatchesOne(const char* pattern, const char* text) {
  const char* star = nullptr;
  const char* resume = nullptr;
  while (*text != '\0') {
    if (*pattern == '*') {
      star = ++pattern;
      resume = text;
    } else if (!IsEnd(*pattern) && *pattern == *text) {
      ++pattern;
      ++text;
    } else if (star != nullptr) {
      pattern = star;
      text = ++resume;
    } else {
      return false;
    }
  }
  while (*pattern == '*') ++pattern;
  return IsEnd(*pattern);
}

using abi::Rule;

template <size_t N>
bool IsText(const char (&text)[N]) {
  return memchr(text, '\0', N) != nullptr;
}

bool IsWellFormed(const Rule& rule) {
  if (rule.frame_count > abi::kRuleFrameCapacity || !IsText(rule.name) ||
      !IsText(rule.module)) {
    return false;
  }
  for (uint32_t i = 0; i < rule.frame_count; ++i) {
    if (!IsText(rule.frames[i])) return false;
  }
  return rule.frame_count > 0 || rule.module[0] != '\0';
}

constexpr uint64_t Bit(uint32_t rule, uint32_t frame) {
  return uint64_t{1} << (rule * abi::kRuleFrameCapacity + frame);
}

// The bits of a rule's first `frames` frames.
constexpr uint64_t BitsBelow(uint32_t rule, uint32_t frames) {
  return ((uint64_t{1} << frames) - 1) << (rule * abi::kRuleFrameCapacity);
}

// Returns the bits of one rule that code with this name matches. The bit of the
// innermost frame also means that the module matches; a rule without frames has
// only that bit.
uint64_t BitsOf(uint32_t index, const Rule& rule, const CodeName& name) {
  const bool module =
      rule.module[0] == '\0' || Matches(rule.module, name.module);
  if (rule.frame_count == 0) return module ? Bit(index, 0) : 0;
  if (name.symbol[0] == '\0') return 0;
  uint64_t bits = 0;
  for (uint32_t i = 0; i < rule.frame_count; ++i) {
    if (i == 0 && !module) continue;
    if (Matches(rule.frames[i], name.symbol)) bits |= Bit(index, i);
  }
  return bits;
}

// Working memory for one look-up. It is mapped, so that only the pages in use
// cost memory.
class MappedBuffer {
 public:
  MappedBuffer()
      : at_(mmap(nullptr, sizeof(NamingBuffer), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~MappedBuffer() {
    if (at_ != MAP_FAILED) munmap(at_, sizeof(NamingBuffer));
  }
  MappedBuffer(const MappedBuffer&) = delete;
  MappedBuffer& operator=(const MappedBuffer&) = delete;

  NamingBuffer* get() const {
    return at_ == MAP_FAILED ? nullptr : static_cast<NamingBuffer*>(at_);
  }

 private:
  void* const at_;
};

}  // namespace

bool Matches(const char* pattern, const char* text) {
  for (;;) {
    if (MatchesOne(pattern, text)) return true;
    while (!IsEnd(*pattern)) ++pattern;
    if (*pattern == '\0') return false;
    ++pattern;
  }
}

bool RuleMatcher::Set(const Rule* rules, uint32_t count) {
  MutexLock lock(&mutex_);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count && kept < abi::kRuleCapacity; ++i) {
    if (IsWellFormed(rules[i])) rules_[kept++] = rules[i];
  }
  ++generation_;
  Forget();
  // Relaxed: readers take the lock before they look at the rules.
  count_.store(kept, std::memory_order_relaxed);
  return kept == count;
}

RuleMatch RuleMatcher::Match(const uint64_t* ips, size_t count,
                             uint64_t bytes) {
  count = std::min(count, kNamedFrames);
  const uint64_t unloads = UnloadCount();
  Known stack[kNamedFrames];
  {
    MutexLock lock(&mutex_);
    if (Look(ips, count, unloads, stack)) return Decide(stack, count, bytes);
  }
  const int kept_errno = errno;
  const RuleMatch match = Learn(ips, count, bytes);
  errno = kept_errno;
  return match;
}

// Copies the known facts about each frame. True if all frames are known.
bool RuleMatcher::Look(const uint64_t* ips, size_t count, uint64_t unloads,
                       Known* out) {
  if (unloads != unloads_) {
    // Other code may be at those addresses now.
    Forget();
    unloads_ = unloads;
  }
  bool all = true;
  for (size_t i = 0; i < count; ++i) {
    out[i] = *Place(ips[i]);
    if (out[i].ip != ips[i]) all = false;
  }
  return all;
}

// Looks up the names of all frames, because all names of a module cost little
// more than one.
RuleMatch RuleMatcher::Learn(const uint64_t* ips, size_t count,
                             uint64_t bytes) {
  const MappedBuffer buffer;
  if (buffer.get() == nullptr) return {};
  uint64_t generation;
  {
    MutexLock lock(&mutex_);
    generation = generation_;
  }
  NameCode(ips, count, buffer.get());
  MutexLock lock(&mutex_);
  if (generation != generation_) return {};
  Known stack[kNamedFrames];
  for (size_t i = 0; i < count; ++i) {
    const CodeName& name = buffer.get()->names[i];
    stack[i] = Judge(ips[i], name);
    // Does not keep code that is in no module: it was generated at run time,
    // and other code may replace it at that address.
    if (name.module[0] != '\0') Keep(stack[i]);
  }
  return Decide(stack, count, bytes);
}

RuleMatcher::Known RuleMatcher::Judge(uint64_t ip, const CodeName& name) const {
  Known known{ip, 0, name.symbol[0] != '\0'};
  const uint32_t count = count_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    known.frames |= BitsOf(i, rules_[i], name);
  }
  return known;
}

// Returns the place that holds `ip`, or the one to keep it in. If all places
// that `ip` may use are taken, the first of them is reused, so that the table
// stays bounded.
RuleMatcher::Known* RuleMatcher::Place(uint64_t ip) {
  // Fibonacci hashing: 2^64 / golden ratio.
  const size_t first = (ip * 0x9e3779b97f4a7c15) >> 54;
  static_assert(kPlaces == size_t{1} << (64 - 54));
  for (size_t i = 0; i < kProbes; ++i) {
    Known* place = &known_[(first + i) % kPlaces];
    if (place->ip == ip || place->ip == 0) return place;
  }
  return &known_[first];
}

void RuleMatcher::Keep(const Known& known) { *Place(known.ip) = known; }

void RuleMatcher::Forget() {
  for (Known& known : known_) known = {};
}

RuleMatch RuleMatcher::Decide(const Known* stack, size_t count,
                              uint64_t bytes) const {
  RuleMatch match;
  uint64_t matched = 0;  // by any frame
  for (size_t i = 0; i < count; ++i) {
    match.unnamed_frames += !stack[i].named;
    matched |= stack[i].frames;
  }
  const uint32_t rule_count = count_.load(std::memory_order_relaxed);
  for (uint32_t r = 0; r < rule_count && !match.found; ++r) {
    const Rule& rule = rules_[r];
    if (bytes < rule.min_bytes || bytes > rule.max_bytes) continue;
    const uint32_t wanted = std::max(rule.frame_count, 1u);
    // Most rules end here, because nothing matches.
    if ((~matched & BitsBelow(r, wanted)) != 0) continue;
    uint32_t next = 0;
    for (size_t i = 0; i < count && next < wanted; ++i) {
      if ((stack[i].frames & Bit(r, next)) != 0) ++next;
    }
    if (next < wanted) continue;
    match.found = true;
    match.kv = rule.kv != 0;
    memcpy(match.name, rule.name, sizeof(match.name));
  }
  return match;
}

}  // namespace fineserve::shim
