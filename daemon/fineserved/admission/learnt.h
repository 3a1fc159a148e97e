#ifndef DAEMON_FINESERVED_ADMISSION_LEARNT_H_
#define DAEMON_FINESERVED_ADMISSION_LEARNT_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/scheduling/local/predict/predictor.h"

namespace fineserve::admission {

// Corrections that were learnt from serving, by name, so that they outlive
// fleet and daemon.
struct Learnt {
  struct Engine {
    std::string model;
    // The profile that the corrections were learnt for; they do not apply to
    // any other profile.
    sched::Profile profile;
    sched::Corrections corrections;
  };
  std::map<std::string, Engine> engines;
  std::map<std::string, double> expected_output;  // tokens, by model
};

// As lines of fields between tabs:
//
//   engine NAME MODEL BASE_US PER_TOKEN_US PER_SEQUENCE_US GUESSED
//     (ACTUAL_US PREDICTED_US OBSERVED) of prefill, and of decode
//   model NAME TOKENS
std::string TextOf(const Learnt& learnt);
// Reads the text. Skips lines in any other form, and numbers that no service
// could have learnt.
Learnt ReadLearnt(absl::string_view text);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_LEARNT_H_
