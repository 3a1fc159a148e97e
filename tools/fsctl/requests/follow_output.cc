#include "tools/fsctl/requests/follow_output.h"

#include <stdio.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using nlohmann::json;

// Replaces bytes that could steer the terminal, since the proxy's text is not
// trusted.
std::string Shown(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string TextAt(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() && *it != ""
             ? Shown(it->get<std::string>())
             : "-";
}

bool Has(const json& object, const char* name) {
  return TextAt(object, name) != "-";
}

std::string CountAt(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_unsigned()
             ? absl::StrCat(it->get<uint64_t>())
             : "-";
}

// "12.3 ms", "4.56 s".
std::string TimeText(double ms) {
  if (ms >= 10'000) return absl::StrFormat("%.2f s", ms / 1000);
  return absl::StrFormat("%.1f ms", ms);
}

std::string TimeAt(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number() ? TimeText(it->get<double>())
                                               : "-";
}

// Returns the proxy's one-word reason as a sentence.
std::string WhyWaited(const std::string& word) {
  static constexpr std::pair<const char*, const char*> kWords[] = {
      {"turn", "others went first"},
      {"batch", "its engine ran as many sequences as it may"},
      {"kv", "too little KV was free"},
      {"prefill", "its engine still filled earlier prompts"},
      {"engine", "no engine took requests (drained, starting or away)"},
      {"activation", "its engine came back to the GPU"},
      {"start", "fsctl up started its engine"},
      {"daemon", "fineserved did not answer"},
  };
  for (const auto& [known, words] : kWords) {
    if (word == known) return words;
  }
  return word;
}

Color ColorOf(const std::string& ended) {
  if (ended == "engine died") return Color::kRed;
  if (ended == "refused" || ended == "client left") return Color::kYellow;
  return Color::kNone;
}

struct Column {
  const char* name;
  int width;  // negative: to the left
};
constexpr Column kColumns[] = {
    {"TIME", -13},  {"MODEL", -16}, {"ENGINE", -14}, {"STATUS", 6},
    {"ENDED", -11}, {"WAITED", 9},  {"FOR", -7},     {"TTFT", 9},
    {"TOTAL", 9},   {"IN", 6},      {"OUT", 6},      {"ID", -1},
};

std::string Row(const std::vector<std::string>& cells) {
  std::string row;
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&row, i == 0 ? "" : " ",
                    absl::StrFormat("%*s", kColumns[i].width, cells[i]));
  }
  return row + "\n";
}

// "23:10:00.123" of a time in RFC 3339.
std::string ClockOf(const std::string& time) {
  const size_t at = time.find('T');
  return at == time.npos ? time : time.substr(at + 1);
}

std::string StepText(const json& step) {
  const std::string what = TextAt(step, "step");
  if (what == "arrived") return "its header arrived";
  if (what == "read") return "all of it was read";
  if (what == "counted") return "an engine counted its prompt";
  if (what == "asked") return "admission was asked";
  if (what == "sent") return absl::StrCat("sent to ", TextAt(step, "engine"));
  if (what == "engine answers") {
    return absl::StrCat(TextAt(step, "engine"), " began to answer");
  }
  if (what == "engine failed") {
    return absl::StrCat(TextAt(step, "engine"), " went away");
  }
  if (what == "first byte" || what == "last byte") {
    return absl::StrCat(what, " of the answer");
  }
  if (what == "ended") return absl::StrCat("ended: ", TextAt(step, "how"));
  if (what != "admitted" && what != "turned away") return what;
  std::string text = absl::StrCat(what, " by ", TextAt(step, "by"));
  if (what == "admitted") {
    absl::StrAppend(&text, " to ", TextAt(step, "engine"));
    if (Has(step, "gpu")) absl::StrAppend(&text, " on ", TextAt(step, "gpu"));
  }
  if (Has(step, "waited_for")) {
    absl::StrAppend(&text, "; queued ", TimeAt(step, "queued_ms"), " because ",
                    WhyWaited(TextAt(step, "waited_for")));
  }
  return text;
}

void AppendSteps(const json& life, std::string* out) {
  const auto steps = life.find("steps");
  if (steps == life.end() || !steps->is_array()) return;
  for (const json& step : *steps) {
    if (!step.is_object()) continue;
    absl::StrAppend(out, absl::StrFormat("%12s", TimeAt(step, "at_ms")), "  ",
                    StepText(step), "\n");
  }
}

}  // namespace

std::string FollowHeading(bool color) {
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.push_back(column.name);
  return Paint(color, Color::kBold, Row(names));
}

std::string FollowLine(const json& life, bool color) {
  if (!life.is_object()) return "";
  if (life.contains("missed")) {
    return absl::StrCat("(", CountAt(life, "missed"),
                        " more ended than could be followed)\n");
  }
  const std::string ended = TextAt(life, "ended");
  return Paint(color, ColorOf(ended),
               Row({ClockOf(TextAt(life, "time")), TextAt(life, "model"),
                    TextAt(life, "engine"), CountAt(life, "status"), ended,
                    TimeAt(life, "waited_ms"), TextAt(life, "waited_for"),
                    TimeAt(life, "ttft_ms"), TimeAt(life, "total_ms"),
                    CountAt(life, "tokens_in"), CountAt(life, "tokens_out"),
                    TextAt(life, "id")}));
}

std::string TraceText(const json& life, bool color) {
  if (!life.is_object()) return "";
  const std::string ended = TextAt(life, "ended");
  std::string out =
      absl::StrCat("request ", Paint(color, Color::kBold, TextAt(life, "id")),
                   "\n", TextAt(life, "method"), " ", TextAt(life, "path"),
                   " for model ", TextAt(life, "model"), ", from ",
                   TextAt(life, "client"), " at ", TextAt(life, "time"), "\n");
  if (Has(life, "trace")) {
    absl::StrAppend(&out, "trace ", TextAt(life, "trace"), "\n");
  }
  absl::StrAppend(&out, "\n");
  AppendSteps(life, &out);
  absl::StrAppend(
      &out, "\n",
      ended == "not yet" ? "under way" : Paint(color, ColorOf(ended), ended),
      ", status ", CountAt(life, "status"),
      Has(life, "error") ? absl::StrCat(" (", TextAt(life, "error"), ")") : "",
      "; first byte after ", TimeAt(life, "ttft_ms"), ", ",
      TimeAt(life, "total_ms"), " in all; tokens in ",
      CountAt(life, "tokens_in"), ", out ", CountAt(life, "tokens_out"), "\n");
  return out;
}

namespace {

bool HasCount(const json& key, const char* name) {
  return key.is_object() && key.contains(name) &&
         key[name].is_number_unsigned();
}

std::string Count(const json& key, const char* name) {
  return HasCount(key, name) ? absl::StrCat(key[name].get<uint64_t>()) : "-";
}

// Red if the budget is spent, yellow from four fifths of it.
Color ColorOf(const json& key) {
  if (!HasCount(key, "tokens_per_day") || !HasCount(key, "tokens_today")) {
    return Color::kNone;
  }
  const auto budget = key["tokens_per_day"].get<uint64_t>();
  const auto spent = key["tokens_today"].get<uint64_t>();
  if (spent >= budget) return Color::kRed;
  return spent >= budget - budget / 5 ? Color::kYellow : Color::kNone;
}

}  // namespace

std::string UsageText(const json& usages, bool color) {
  const bool has_keys = usages.is_object() && usages.contains("keys") &&
                        usages["keys"].is_array();
  if (!has_keys || usages["keys"].empty()) {
    return "no key has a name; only named keys are counted "
           "(fineserve-fleet(5), keys)\n";
  }
  TextTable table({"KEY", ">REQUESTS", ">PROMPT", ">OUTPUT", ">TODAY",
                   ">OF A DAY", ">UNDER WAY"});
  for (const json& key : usages["keys"]) {
    const bool is_named =
        key.is_object() && key.contains("key") && key["key"].is_string();
    table.Add({is_named ? key["key"].get<std::string>() : "-",
               Count(key, "requests"),
               Count(key, "prompt_tokens"),
               Count(key, "output_tokens"),
               {Count(key, "tokens_today"), ColorOf(key)},
               Count(key, "tokens_per_day"),
               Count(key, "under_way")});
  }
  return table.Render(color);
}

}  // namespace fineserve::fsctl
