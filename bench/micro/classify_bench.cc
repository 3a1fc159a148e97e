// The cost of classifying an allocation: see kQuestion.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/report/report.h"
#include "daemon/contract/abi/transport.h"
#include "shim/classify/rule_matcher.h"
#include "shim/classify/stack.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does it cost to decide whether a large allocation is KV?

The baseline, in the same run and on the same stack, is what the shim does for
a large allocation without rules: it captures the stack. Compared with it is
the same with rules, warm (this stack was seen before) and cold (it was not, so
the names of all frames are looked up). The rules are handed over again to make
it cold, as happens after a dlclose. Capturing itself is compared with libgcc's
unwinder.)";

using shim::kNamedFrames;

constexpr int kRounds = 2001;
constexpr int kColdRounds = 101;
constexpr uint64_t kKvBytes = 512 << 20;

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Returns as many rules as a shim accepts; only the last one matches.
std::vector<abi::Rule> Rules() {
  std::vector<abi::Rule> rules(abi::kRuleCapacity);
  for (abi::Rule& rule : rules) {
    abi::CopyText(rule.name, "other");
    abi::CopyText(rule.frames[0], "_Z*14llama_kv_cacheC*");
    rule.frame_count = 1;
    rule.max_bytes = UINT64_MAX;
    rule.kv = 1;
  }
  // This is the outermost frame that has a name.
  abi::CopyText(rules.back().frames[0], "__libc_start_main*");
  return rules;
}

struct Percentiles {
  double median;
  double p99;
};

Percentiles Of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values[values.size() * 99 / 100]};
}

enum class How { kLibgcc, kStack, kRules };

// Captures the stack of one allocation and applies the rules, if any.
struct Subject {
  std::vector<abi::Rule> rules = Rules();
  std::unique_ptr<shim::RuleMatcher> matcher =
      std::make_unique<shim::RuleMatcher>();

  void Forget() {
    matcher->Set(rules.data(), static_cast<uint32_t>(rules.size()));
  }

  [[gnu::noinline]] bool Once(How how) {
    uint64_t frames[kNamedFrames];
    const auto capture =
        how == How::kLibgcc ? &shim::UnwindStack : &shim::CaptureStack;
    const uint16_t count =
        capture(__builtin_return_address(0), frames, kNamedFrames);
    return how == How::kRules && matcher->Match(frames, count, kKvBytes).found;
  }
};

// Puts twenty frames between main and the allocation, like a short Python
// stack.
[[gnu::noinline]] bool Deep(Subject* subject, How how, int depth) {
  const bool found =
      depth == 0 ? subject->Once(how) : Deep(subject, how, depth - 1);
  asm volatile("" ::: "memory");  // keeps the frame: no tail call
  return found;
}

double Ns(Subject* subject, How how) {
  const uint64_t start = NowNs();
  const bool found = Deep(subject, how, 20);
  const uint64_t end = NowNs();
  if (found != (how == How::kRules)) {
    fprintf(stderr, "classify: the rule did not match\n");
    exit(1);  // the figures would mean nothing
  }
  return static_cast<double>(end - start);
}

int Main(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"classify", kQuestion});
  Subject subject;
  subject.Forget();
  for (How how : {How::kLibgcc, How::kStack, How::kRules}) Ns(&subject, how);
  std::vector<double> libgcc, without, warm, cold;
  for (int i = 0; i < kRounds; ++i) {
    libgcc.push_back(Ns(&subject, How::kLibgcc));
    without.push_back(Ns(&subject, How::kStack));
    warm.push_back(Ns(&subject, How::kRules));
  }
  for (int i = 0; i < kColdRounds; ++i) {
    subject.Forget();
    cold.push_back(Ns(&subject, How::kRules));
  }
  Report report("classify");
  const auto add = [&](const char* what, const std::vector<double>& ns) {
    const Percentiles p = Of(ns);
    report.Figure(std::string(what) + ", median (ns)", p.median);
    report.Figure(std::string(what) + ", p99 (ns)", p.p99);
  };
  add("stack by libgcc's unwinder", libgcc);
  add("stack only, no rules", without);
  add("stack and 16 rules, warm", warm);
  add("stack and 16 rules, cold", cold);
  report.Claim("warm / no rules (ratio)", Of(warm).median / Of(without).median,
               2, Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
