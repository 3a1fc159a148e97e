#ifndef TESTS_GPU_OUTCOME_H_
#define TESTS_GPU_OUTCOME_H_

#include <map>
#include <string>
#include <vector>

namespace fineserve::gpu {

enum class Verdict { kHeld, kFailed, kSkipped };
const char* Word(Verdict verdict);  // "held", "failed", "skipped"

// One test case of a check.
struct Case {
  std::string name;
  Verdict verdict = Verdict::kHeld;
  std::string reason;  // of a failure or a skip
  std::map<std::string, std::string> figures;
};

struct Outcome {
  Verdict verdict = Verdict::kHeld;
  std::string reason;  // why the whole check failed or was not run
  std::vector<Case> cases;
  double seconds = 0;
};

// Returns the cases in a test program's report: GoogleTest's JSON, where a
// case's properties are its figures and "skip_reason" says why it was skipped.
// Empty if `path` holds no such report.
std::vector<Case> ReadCases(const std::string& path);

// Returns "failed" if any case or the program failed (`complaint` says how),
// and "skipped" if nothing ran.
Outcome Judge(std::vector<Case> cases, const std::string& complaint);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_OUTCOME_H_
