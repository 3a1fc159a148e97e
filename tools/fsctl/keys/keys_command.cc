
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/keys.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"

namespace fineserve::fsctl {
namespace {

using wire::KeyFolder;

struct KeysOptions {
  enum class Do { kShow, kNew, kTrust, kDistrust };
  Do what = Do::kShow;
  std::string machine;
  std::string key;
  bool replace = false;
};

int MakeKeys(const Globals& globals, const KeyFolder& keys, bool replace) {
  const absl::StatusOr<wire::KeyPair> made = wire::NewKeyPair();
  if (!made.ok()) return Fail(kExitBadAnswer, made.status());
  const absl::Status s = keys.WriteOwn(*made, replace);
  if (!s.ok()) return Fail(kExitBadAnswer, s);
  if (globals.json) {
    return Print(JsonText(nlohmann::json{{"public_key", made->public_key}}));
  }
  return Print(
      absl::StrCat(made->public_key, "\nwritten to ", keys.path(),
                   "; on every other machine: fsctl keys trust THIS-MACHINE '",
                   made->public_key, "'\n"));
}

int ShowKeys(const Globals& globals, const KeyFolder& keys) {
  const absl::StatusOr<wire::KeyPair> own = keys.Own();
  if (!own.ok()) return Fail(kExitBadAnswer, own.status());
  const absl::StatusOr<std::map<std::string, std::string>> trusted =
      keys.Trusted();
  if (!trusted.ok()) return Fail(kExitBadAnswer, trusted.status());
  if (globals.json) {
    return Print(JsonText(nlohmann::json{{"public_key", own->public_key},
                                         {"trusted", *trusted}}));
  }
  std::string text = absl::StrCat(own->public_key, "  this machine\n");
  for (const auto& [machine, key] : *trusted) {
    absl::StrAppend(&text, key, "  ", machine, "\n");
  }
  return Print(text);
}

int Done(const Globals& globals, const absl::Status& s,
         const std::string& text) {
  if (!s.ok()) {
    return Fail(absl::IsInvalidArgument(s) ? kExitUsage : kExitBadAnswer, s);
  }
  return Print(globals.json ? "{\"done\": true}\n" : text);
}

int RunKeys(const Globals& globals, const KeysOptions& o) {
  const KeyFolder keys(KeyFolder::Default());
  switch (o.what) {
    case KeysOptions::Do::kNew:
      return MakeKeys(globals, keys, o.replace);
    case KeysOptions::Do::kTrust:
      return Done(globals, keys.Trust(o.machine, o.key),
                  absl::StrCat(o.machine, " is trusted from now on\n"));
    case KeysOptions::Do::kDistrust:
      return Done(globals, keys.Distrust(o.machine),
                  absl::StrCat(o.machine,
                               " is no longer trusted; what is connected stays "
                               "so until it, or fineserved, restarts\n"));
    case KeysOptions::Do::kShow:
      break;
  }
  return ShowKeys(globals, keys);
}

}  // namespace

void AddKeys(Commands& c) {
  using Do = KeysOptions::Do;
  const auto added = c.Add(
      "keys", "Show and make this machine's keys, and trust others'",
      "  fsctl keys new                  once on each machine\n"
      "  fsctl keys show\n"
      "  fsctl keys trust b 'rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7'\n"
      "  fsctl keys distrust b\n"
      "The keys are in $FINESERVE_KEYS, by default /etc/fineserve/curve.\n",
      RunKeys);
  CLI::App* const command = added.command;
  KeysOptions* const o = added.options;
  const auto add = [&](const char* name, const char* what, Do does) {
    CLI::App* one = command->add_subcommand(name, what);
    one->callback([o, does] { o->what = does; });
    return one;
  };
  command->require_subcommand(0, 1);
  add("show", "Show this machine's public key and those it trusts", Do::kShow);
  add("new", "Make this machine's keys", Do::kNew);
  command->add_flag("--replace", o->replace,
                    "With new: even if this machine has some");
  CLI::App* trust =
      add("trust", "Let a machine connect, and connect to it", Do::kTrust);
  trust->add_option("MACHINE", o->machine, "Its name in [cluster]")->required();
  trust->add_option("KEY", o->key, "Its public key")->required();
  add("distrust", "End that", Do::kDistrust)
      ->add_option("MACHINE", o->machine, "Its name")
      ->required();
}

}  // namespace fineserve::fsctl
