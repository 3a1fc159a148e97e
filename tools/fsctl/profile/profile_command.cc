
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
#include "tools/fsctl/profile/profile_output.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/openai/target.h"

namespace fineserve::fsctl {
namespace {

struct ProfileOptions {
  std::string url;
  std::string model;  // empty: the only one
  std::vector<uint32_t> batches = {1, 2, 4, 8, 16, 32};
  std::vector<uint32_t> prompts = {64, 256, 1024};
  uint32_t chunk_tokens = 0;  // 0: what fits best
  double budget_s = 300;
  std::string output_path;  // empty: no file
  std::string api_key_path;
  bool chat = false;
  bool even_if_busy = false;
  // Written to the file as given, since they cannot be measured over HTTP; left
  // out if 0.
  std::string architecture, quantisation;
  uint32_t tp = 1;
  std::string weights, activations;  // sizes as the user wrote them
  uint32_t kv_token_bytes = 0;
};

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
  config::MeasuredProfile reported;
  reported.url = o.url;
  reported.architecture = o.architecture;
  reported.quantisation = o.quantisation;
  reported.tp = o.tp;
  reported.kv_token_bytes = o.kv_token_bytes;
  absl::Status s = ReadSize("--weights", o.weights, &reported.weight_bytes);
  if (s.ok()) {
    s = ReadSize("--activations", o.activations, &reported.activation_bytes);
  }
  if (!s.ok()) return s;
  return reported;
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
  // A random seed, so that the prompts are in no engine's cache. Nothing else
  // depends on the seed.
  plan.seed = uint64_t{std::random_device()()} << 32;
  return plan;
}

// Adds the user's own figures to the measured ones.
void AddGiven(const config::MeasuredProfile& reported,
              config::MeasuredProfile* p) {
  p->url = reported.url;
  p->architecture = reported.architecture;
  p->quantisation = reported.quantisation;
  p->tp = reported.tp;
  p->weight_bytes = reported.weight_bytes;
  p->activation_bytes = reported.activation_bytes;
  p->kv_token_bytes = reported.kv_token_bytes;
}

int Report(const Globals& globals, const ProfileOptions& options,
           const Conclusion& c) {
  // Prints before it writes, so that the measurement is not lost if the disk is
  // full.
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

int RunProfile(const Globals& globals, const ProfileOptions& options) {
  const absl::StatusOr<MeasurementPlan> plan = ReadPlan(options);
  if (!plan.ok()) return Fail(kExitUsage, plan.status());
  const auto reported = ReadTold(options);
  if (!reported.ok()) return Fail(kExitUsage, reported.status());
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
  AddGiven(*reported, &c->profile);
  c->profile.model = measured->model;
  return Report(globals, options, *c);
}

// Adds the options for the values of a profile file that are not measured.
void AddGiven(CLI::App* command, ProfileOptions* o) {
  const char* kGroup = "For the file, since it cannot be measured";
  command->add_option("--architecture", o->architecture, "Such as llama-3.1-8b")
      ->group(kGroup);
  command->add_option("--quantisation", o->quantisation, "Such as fp16, awq")
      ->group(kGroup);
  command->add_option("--tp", o->tp, "GPUs that it spans (default: 1)")
      ->check(CLI::Range(1, 1024))
      ->group(kGroup);
  command->add_option("--weights", o->weights, "Size on all GPUs, like 15GiB")
      ->group(kGroup);
  command->add_option("--activations", o->activations, "Their average size")
      ->group(kGroup);
  command
      ->add_option("--kv-token-bytes", o->kv_token_bytes,
                   "KV bytes of a token over all layers")
      ->check(CLI::PositiveNumber)
      ->group(kGroup);
}

}  // namespace

void AddProfile(Commands& c) {
  const auto [command, o] = c.Add(
      "profile", "Measure how long an engine's steps take",
      "  fsctl profile http://127.0.0.1:9001 --output llama.toml\n"
      "  fsctl profile http://127.0.0.1:9001 --batches 1,8 --prompts 64,512\n"
      "  fsctl profile http://127.0.0.1:9001 --json | jq .profile\n"
      "The engine must be idle. Any that speaks OpenAI's HTTP will do; a "
      "fleet\n"
      "file reads the output by profile = \"llama.toml\".\n",
      RunProfile);
  command->add_option("URL", o->url, "The engine, as http://HOST:PORT")
      ->required();
  command->add_option("--model", o->model,
                      "Model to ask for (default: the only one)");
  command
      ->add_option("--batches", o->batches,
                   "Prompts at once (default: 1,2,4,8,16,32)")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--prompts", o->prompts,
                   "Tokens of a prompt (default: 64,256,1024)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--output", o->output_path, "File to write");
  command
      ->add_option("--budget", o->budget_s,
                   "Seconds to measure for, at most (default: 300)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--chunk-tokens", o->chunk_tokens,
                   "Prompt tokens that the engine fills in a step (default: "
                   "what fits best)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--api-key-file", o->api_key_path,
                      "File whose first line is the engine's API key");
  command->add_flag("--chat", o->chat, "Ask for chats instead of completions");
  command->add_flag("--even-if-busy", o->even_if_busy,
                    "Measure although other requests run");
  AddGiven(command, o);
}

}  // namespace fineserve::fsctl
