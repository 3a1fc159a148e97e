#include "daemon/fineserved/admission/learnt.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace fineserve::admission {
namespace {

using Fields = std::vector<absl::string_view>;

constexpr size_t kEngineFields = 13;
constexpr size_t kModelFields = 3;

// Formats a number so that reading it gives the same value.
std::string Exact(double number) { return absl::StrFormat("%.17g", number); }

std::string SumsText(const sched::Correction& correction) {
  const sched::Correction::Sums& sums = correction.sums();
  return absl::StrCat("\t", Exact(sums.actual_us), "\t",
                      Exact(sums.predicted_us), "\t", sums.observed);
}

bool ReadPositive(absl::string_view text, double* number) {
  return absl::SimpleAtod(text, number) && std::isfinite(*number) &&
         *number > 0;
}

bool ReadCoefficient(absl::string_view text, double* number) {
  return absl::SimpleAtod(text, number) && std::isfinite(*number) &&
         *number >= 0;
}

// Reads the sums from the fields that begin at `at`.
bool ReadSums(const Fields& fields, size_t at, sched::Correction* correction) {
  sched::Correction::Sums sums;
  if (!ReadPositive(fields[at], &sums.actual_us) ||
      !ReadPositive(fields[at + 1], &sums.predicted_us) ||
      !absl::SimpleAtoi(fields[at + 2], &sums.observed)) {
    return false;
  }
  *correction = sched::Correction(sums);
  return true;
}

void ReadEngine(const Fields& fields, Learnt* learnt) {
  Learnt::Engine engine;
  engine.model = std::string(fields[2]);
  engine.profile.guessed = fields[6] == "1";
  if (ReadCoefficient(fields[3], &engine.profile.base_us) &&
      ReadCoefficient(fields[4], &engine.profile.per_token_us) &&
      ReadCoefficient(fields[5], &engine.profile.per_sequence_us) &&
      ReadSums(fields, 7, &engine.corrections.prefill) &&
      ReadSums(fields, 10, &engine.corrections.decode)) {
    learnt->engines[std::string(fields[1])] = engine;
  }
}

void ReadModel(const Fields& fields, Learnt* learnt) {
  double tokens = 0;
  if (!ReadPositive(fields[2], &tokens) || tokens > UINT32_MAX) return;
  learnt->expected_output[std::string(fields[1])] = tokens;
}

}  // namespace

std::string TextOf(const Learnt& learnt) {
  std::string text;
  for (const auto& [name, e] : learnt.engines) {
    absl::StrAppend(
        &text, "engine\t", name, "\t", e.model, "\t", Exact(e.profile.base_us),
        "\t", Exact(e.profile.per_token_us), "\t",
        Exact(e.profile.per_sequence_us), "\t", int{e.profile.guessed},
        SumsText(e.corrections.prefill), SumsText(e.corrections.decode), "\n");
  }
  for (const auto& [name, tokens] : learnt.expected_output) {
    absl::StrAppend(&text, "model\t", name, "\t", Exact(tokens), "\n");
  }
  return text;
}

Learnt ReadLearnt(absl::string_view text) {
  Learnt learnt;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const Fields fields = absl::StrSplit(line, '\t');
    if (fields[0] == "engine" && fields.size() == kEngineFields) {
      ReadEngine(fields, &learnt);
    } else if (fields[0] == "model" && fields.size() == kModelFields) {
      ReadModel(fields, &learnt);
    }
  }
  return learnt;
}

}  // namespace fineserve::admission
