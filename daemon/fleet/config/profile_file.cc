#include "daemon/fleet/config/profile_file.h"

#include <charconv>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {
namespace {

constexpr uint32_t kMostProfileCount = 1 << 24;

Setter Step(const std::string& path, MeasuredProfile* p) {
  return Section(path, {{"base_us", Amount(&p->step.base_us)},
                        {"per_token_us", Amount(&p->step.per_token_us)},
                        {"per_sequence_us", Amount(&p->step.per_sequence_us)},
                        {"decode_base_us", Amount(&p->decode_base_us)}});
}

Setter Quality(const std::string& path, ProfileQuality* q) {
  StepProfile& errors = q->standard_errors;
  return Section(path,
                 {{"base_error_us", Amount(&errors.base_us)},
                  {"per_token_error_us", Amount(&errors.per_token_us)},
                  {"per_sequence_error_us", Amount(&errors.per_sequence_us)},
                  {"prefill_error", Amount(&q->prefill_error)},
                  {"decode_error", Amount(&q->decode_error)}});
}

Setter Point(const std::string& path, std::vector<ProfilePoint>* points) {
  return Sections("point", [=](const toml::node& node) {
    ProfilePoint p;
    absl::Status s = Section(
        path,
        {{"batch", Count(&p.batch, 1, kMostProfileCount)},
         {"prompt_tokens", Count(&p.prompt_tokens, 1, kMostProfileCount)},
         {"ttft_s", Amount(&p.ttft_s)},
         {"step_s", Amount(&p.step_s)},
         {"ttft_spread", Amount(&p.ttft_spread)},
         {"step_spread", Amount(&p.step_spread)},
         {"repetitions", Count(&p.repetitions, 0, kMostProfileCount)}})(node);
    if (!s.ok()) return s;
    if (p.batch == 0 || p.prompt_tokens == 0 || p.ttft_s <= 0 ||
        p.step_s <= 0) {
      return At(path, node.source(),
                "a [[point]] needs batch, prompt_tokens, ttft_s and step_s, "
                "all above 0; measure it again with fsctl profile");
    }
    points->push_back(p);
    return absl::OkStatus();
  });
}

// Returns the shortest text that is read back as the same number.
std::string Number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return {text, end.ptr};
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Collects lines; leaves out missing values.
class Lines {
 public:
  void Add(const char* key, double value) {
    absl::StrAppend(&text_, key, " = ", Number(value), "\n");
  }
  void AddGiven(const char* key, double value) {
    if (value != 0) Add(key, value);
  }
  void AddGiven(const char* key, const std::string& value) {
    if (!value.empty()) {
      absl::StrAppend(&text_, key, " = ", Quoted(value), "\n");
    }
  }
  void Begin(const char* section) {
    absl::StrAppend(&text_, "\n", section, "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

Setter ProfileKey(const std::string& path, const std::string& key,
                  TakeProfile take) {
  return [=](const toml::node& node) {
    std::string written;
    if (absl::Status s = Text(&written)(node); !s.ok()) return s;
    const std::string found = ProfilePath(path, written);
    const absl::StatusOr<MeasuredProfile> file = ReadProfile(found);
    if (!file.ok()) {
      return At(path, node.source(),
                absl::StrCat(key, ": ", std::string(file.status().message())));
    }
    take(found, *file);
    return absl::OkStatus();
  };
}

absl::StatusOr<MeasuredProfile> ReadProfile(const std::string& path) {
  MeasuredProfile p;
  absl::Status s = ReadToml(
      path, {{"model", Text(&p.model)},
             {"url", Text(&p.url)},
             {"chunk_tokens", Count(&p.chunk_tokens, 1, kMostProfileCount)},
             {"architecture", Text(&p.architecture)},
             {"quantisation", Text(&p.quantisation)},
             {"tp", Count(&p.tp, 1, 1024)},
             {"weight_bytes", Amount(&p.weight_bytes)},
             {"activation_bytes", Amount(&p.activation_bytes)},
             {"kv_token_bytes", Count(&p.kv_token_bytes, 1, UINT32_MAX)},
             {"step", Step(path, &p)},
             {"quality", Quality(path, &p.quality)},
             {"point", Point(path, &p.points)}});
  if (absl::IsNotFound(s)) {
    return absl::NotFoundError(
        absl::StrCat(std::string(s.message()),
                     "; fsctl profile URL --output FILE makes it"));
  }
  if (!s.ok()) return s;
  if (p.step.per_token_us > 0) return p;
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ":1: no per_token_us above 0 in [step]; measure it with "
                   "fsctl profile URL --output ",
                   path));
}

std::string ProfilePath(const std::string& path, const std::string& written) {
  return std::filesystem::path(path).replace_filename(written).string();
}

std::string ProfileText(const MeasuredProfile& p) {
  Lines lines;
  lines.AddGiven("model", p.model);
  lines.AddGiven("url", p.url);
  lines.AddGiven("chunk_tokens", p.chunk_tokens);
  lines.AddGiven("architecture", p.architecture);
  lines.AddGiven("quantisation", p.quantisation);
  lines.Add("tp", p.tp);
  lines.AddGiven("weight_bytes", p.weight_bytes);
  lines.AddGiven("activation_bytes", p.activation_bytes);
  lines.AddGiven("kv_token_bytes", p.kv_token_bytes);
  lines.Begin("[step]");
  lines.Add("base_us", p.step.base_us);
  lines.Add("per_token_us", p.step.per_token_us);
  lines.Add("per_sequence_us", p.step.per_sequence_us);
  lines.Add("decode_base_us", p.decode_base_us);
  lines.Begin("[quality]");
  lines.Add("base_error_us", p.quality.standard_errors.base_us);
  lines.Add("per_token_error_us", p.quality.standard_errors.per_token_us);
  lines.Add("per_sequence_error_us", p.quality.standard_errors.per_sequence_us);
  lines.Add("prefill_error", p.quality.prefill_error);
  lines.Add("decode_error", p.quality.decode_error);
  for (const ProfilePoint& point : p.points) {
    lines.Begin("[[point]]");
    lines.Add("batch", point.batch);
    lines.Add("prompt_tokens", point.prompt_tokens);
    lines.Add("ttft_s", point.ttft_s);
    lines.Add("step_s", point.step_s);
    lines.Add("ttft_spread", point.ttft_spread);
    lines.Add("step_spread", point.step_spread);
    lines.Add("repetitions", point.repetitions);
  }
  return absl::StrCat(
      "# Written by fsctl profile. A fleet file reads it by profile = \"FILE\" "
      "(fineserve-fleet(5)).\n",
      lines.Take());
}

}  // namespace fineserve::config
