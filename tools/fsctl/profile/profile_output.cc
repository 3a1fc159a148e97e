#include "tools/fsctl/profile/profile_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/whole_file.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using config::MeasuredProfile;
using config::ProfilePoint;
using Json = nlohmann::ordered_json;

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.2f ms", 1000 * seconds);
}

double TokensPerSecond(const ProfilePoint& p) { return p.batch / p.step_s; }

// Formats with `digits` significant digits, never with an exponent.
std::string Digits(double value, int digits) {
  if (value >= std::pow(10, digits - 1)) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.*g", digits, value);
}

// "7600 µs ± 80": the second number is two standard errors, which covers 95 %
// if errors are normal.
std::string Coefficient(double us, double standard_error_us) {
  const std::string text = absl::StrCat(Digits(us, 4), " µs");
  if (standard_error_us == 0) return text;
  return absl::StrCat(text, " ± ", Digits(2 * standard_error_us, 2));
}

std::string PointTable(const MeasuredProfile& p, bool color) {
  TextTable table({">BATCH", ">PROMPT TOKENS", ">TTFT", ">STEP", ">TOKENS/S",
                   ">SPREAD", ">REPEATED"});
  for (const ProfilePoint& point : p.points) {
    table.Add({absl::StrCat(point.batch), absl::StrCat(point.prompt_tokens),
               Milliseconds(point.ttft_s), Milliseconds(point.step_s),
               absl::StrFormat("%.0f", TokensPerSecond(point)),
               Percent(std::max(point.ttft_spread, point.step_spread), 1),
               absl::StrCat(point.repetitions)});
  }
  return table.Render(color);
}

Json PointJson(const ProfilePoint& p) {
  return {{"batch", p.batch},
          {"prompt_tokens", p.prompt_tokens},
          {"ttft_s", p.ttft_s},
          {"step_s", p.step_s},
          {"tokens_per_s", TokensPerSecond(p)},
          {"ttft_spread", p.ttft_spread},
          {"step_spread", p.step_spread},
          {"repetitions", p.repetitions}};
}

}  // namespace

std::string ConclusionText(const Conclusion& c, bool color) {
  const MeasuredProfile& p = c.profile;
  const config::StepProfile& errors = p.quality.standard_errors;
  std::string text = absl::StrCat("model  ", p.model, " at ", p.url, "\n\n",
                                  PointTable(p, color), "\n");
  absl::StrAppend(
      &text, "step   base ", Coefficient(p.step.base_us, errors.base_us),
      ", prompt token ", Coefficient(p.step.per_token_us, errors.per_token_us),
      ", sequence ",
      Coefficient(p.step.per_sequence_us, errors.per_sequence_us),
      "; base without prompts ", Coefficient(p.decode_base_us, 0), "\n");
  absl::StrAppend(&text, "error  ", Percent(p.quality.prefill_error, 1),
                  " of TTFT, ", Percent(p.quality.decode_error, 1),
                  " of a step, on average; prompts in chunks of ",
                  p.chunk_tokens, c.chunk_found ? " (fits best)\n" : "\n");
  absl::StrAppendFormat(&text,
                        "fleet  profile = { base_us = %.6g, per_token_us = "
                        "%.6g, per_sequence_us = %.6g }\n",
                        p.step.base_us, p.step.per_token_us,
                        p.step.per_sequence_us);
  return text;
}

std::string ConclusionJson(const Conclusion& c) {
  const MeasuredProfile& p = c.profile;
  const config::StepProfile& errors = p.quality.standard_errors;
  Json json = {{"model", p.model},
               {"url", p.url},
               {"chunk_tokens", p.chunk_tokens},
               {"chunk_found", c.chunk_found},
               {"profile",
                {{"base_us", p.step.base_us},
                 {"per_token_us", p.step.per_token_us},
                 {"per_sequence_us", p.step.per_sequence_us},
                 {"decode_base_us", p.decode_base_us}}},
               {"standard_errors",
                {{"base_us", errors.base_us},
                 {"per_token_us", errors.per_token_us},
                 {"per_sequence_us", errors.per_sequence_us}}},
               {"prefill_error", p.quality.prefill_error},
               {"decode_error", p.quality.decode_error},
               {"points", Json::array()},
               {"warnings", c.warnings}};
  for (const ProfilePoint& point : p.points) {
    json["points"].push_back(PointJson(point));
  }
  return JsonText(json);
}

std::string ProgressText(const Progress& p, size_t columns) {
  constexpr size_t kBar = 24;
  const double part = p.all == 0
                          ? 1
                          : std::min(1.0, static_cast<double>(p.done) /
                                              static_cast<double>(p.all));
  const auto filled = static_cast<size_t>(part * kBar);
  const std::string bar = std::string(filled, '=') + (filled < kBar ? ">" : "");
  std::string text =
      absl::StrFormat("[%-*s] %d/%d  %s  %.0f s", static_cast<int>(kBar), bar,
                      p.done, p.all, p.now, p.elapsed_s);
  if (p.done > 0 && p.done < p.all) {
    const double rest = p.elapsed_s / part - p.elapsed_s;
    const double left = std::min(rest, p.budget_s - p.elapsed_s);
    absl::StrAppendFormat(&text, ", about %.0f s left", std::max(0.0, left));
  }
  if (text.size() > columns) text.resize(columns);
  return text;
}

namespace {

absl::Status WithCure(const absl::Status& s) {
  return absl::UnavailableError(
      absl::StrCat(s.message(), "; choose another --output"));
}

}  // namespace

absl::Status CheckWritable(const std::string& path) {
  struct stat found;
  const bool exists = stat(path.c_str(), &found) == 0;
  if (exists && !S_ISREG(found.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat(path, " is not a regular file; choose another --output"));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const char* where = folder.empty() ? "." : folder.c_str();
  return access(where, W_OK | X_OK) == 0
             ? absl::OkStatus()
             : WithCure(base::Cannot("write", path));
}

absl::Status WriteProfile(const std::string& path, const std::string& text) {
  const absl::Status s =
      base::ReplaceFile(path, text, {.mode = 0644, .synced = true});
  return s.ok() ? s : WithCure(s);
}

}  // namespace fineserve::fsctl
