#include "tools/fsctl/profile/profile_command.h"

#include <stdio.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "daemon/fleet/config/size_text.h"
#include "tools/fsctl/profile/conclusion.h"
#include "tools/fsctl/profile/measurement.h"
#include "tools/fsctl/profile/new_file.h"
#include "tools/fsctl/profile/profile_output.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/openai/target.h"

namespace fineserve::fsctl {
namespace {

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path);
  std::string key;
  std::getline(file, key);
  absl::StripAsciiWhitespace(&key);
  if (!key.empty()) return key;
  return absl::InvalidArgumentError(absl::StrCat(
      "--api-key-file ", path, ": its first line must be the key"));
}

absl::Status ReadSize(const char* flag, const std::string& text,
                      double* bytes) {
  if (text.empty()) return absl::OkStatus();
  uint64_t read = 0;
  if (!config::SetByteSize(text, &read).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": \"", text, "\" is not a size like 16GiB"));
  }
  *bytes = static_cast<double>(read);
  return absl::OkStatus();
}

// Reads the user's own figures for the file.
absl::StatusOr<config::MeasuredProfile> ReadTold(const ProfileOptions& o) {
  config::MeasuredProfile told;
  told.url = o.url;
  told.architecture = o.architecture;
  told.quantisation = o.quantisation;
  told.tp = o.tp;
  told.kv_token_bytes = o.kv_token_bytes;
  absl::Status s = ReadSize("--weights", o.weights, &told.weight_bytes);
  if (s.ok()) {
    s = ReadSize("--activations", o.activations, &told.activation_bytes);
  }
  if (!s.ok()) return s;
  return told;
}

absl::StatusOr<MeasurementPlan> ReadPlan(const ProfileOptions& o) {
  absl::StatusOr<openai::Target> target = openai::ParseUrl(o.url);
  if (!target.ok()) return target.status();
  const absl::StatusOr<std::string> key = ReadKey(o.api_key_path);
  if (!key.ok()) return key.status();
  if (absl::Status s = CheckPoints(o.batches, o.prompts); !s.ok()) return s;
  target->key = *key;
  if (o.chat) target->path = "/v1/chat/completions";
  MeasurementPlan plan;
  plan.target = *std::move(target);
  plan.chat = o.chat;
  plan.model = o.model;
  plan.points = PlanPoints(o.batches, o.prompts);
  plan.budget_s = o.budget_s;
  plan.even_if_busy = o.even_if_busy;
  // Not to be guessed by an engine's cache: nothing else depends on it.
  plan.seed = uint64_t{std::random_device()()} << 32;
  return plan;
}

// Adds the user's own figures to the measured ones.
void AddTold(const config::MeasuredProfile& told, config::MeasuredProfile* p) {
  p->url = told.url;
  p->architecture = told.architecture;
  p->quantisation = told.quantisation;
  p->tp = told.tp;
  p->weight_bytes = told.weight_bytes;
  p->activation_bytes = told.activation_bytes;
  p->kv_token_bytes = told.kv_token_bytes;
}

int Report(const Globals& globals, const ProfileOptions& options,
           const Conclusion& c) {
  // Printed first: a full disk must not cost the measurement.
  Print(globals.json ? ConclusionJson(c) : ConclusionText(c, globals.color));
  for (const std::string& warning : c.warnings) {
    fprintf(stderr, "fsctl: warning: %s\n", warning.c_str());
  }
  if (options.output_path.empty()) return kExitOk;
  const absl::Status s =
      WriteProfile(options.output_path, config::ProfileText(c.profile));
  if (!s.ok()) return Fail(kExitBadAnswer, s);
  if (!globals.json) {
    Print(absl::StrCat("file   ", options.output_path,
                       ", for a fleet file's model: profile = \"",
                       options.output_path, "\"\n"));
  }
  return kExitOk;
}

}  // namespace

int RunProfile(const Globals& globals, const ProfileOptions& options) {
  const absl::StatusOr<MeasurementPlan> plan = ReadPlan(options);
  if (!plan.ok()) return Fail(kExitUsage, plan.status());
  const auto told = ReadTold(options);
  if (!told.ok()) return Fail(kExitUsage, told.status());
  if (!options.output_path.empty()) {
    const absl::Status s = CheckWritable(options.output_path);
    if (!s.ok()) return Fail(kExitBadAnswer, s);
  }
  const absl::StatusOr<Measured> measured =
      Measure(*plan, isatty(STDERR_FILENO) != 0);
  if (!measured.ok()) {
    return Fail(kExitBadAnswer,
                absl::StrCat(options.url, ": ", measured.status().message()));
  }
  absl::StatusOr<Conclusion> c =
      Conclude(measured->points, options.chunk_tokens);
  if (!c.ok()) return Fail(kExitBadAnswer, c.status());
  AddTold(*told, &c->profile);
  c->profile.model = measured->model;
  return Report(globals, options, *c);
}

}  // namespace fineserve::fsctl
