#ifndef DAEMON_FLEET_CONFIG_FLEET_DESCRIPTION_H_
#define DAEMON_FLEET_CONFIG_FLEET_DESCRIPTION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::config {

// Maps each key of one section of a fleet to its value as text.
using SectionDescription = std::map<std::string, std::string>;

// A fleet as text, by section: "proxy", "scheduler", "planner", "cluster",
// "model NAME", "engine NAME". Two fleets are the same if their descriptions
// are. Processes send each other this description, so it has only digests of
// the values in an engine's environment, which may be secrets.
using FleetDescription = std::map<std::string, SectionDescription>;
FleetDescription Describe(const Fleet& fleet);

// Returns a digest, which is the same for the same description in every
// process.
std::string DigestOf(const FleetDescription& description);

struct KeyChange {
  std::string key, before, after;  // a value is empty if the key was not there
  bool operator==(const KeyChange&) const = default;
};

struct SectionChange {
  enum class Kind { kAdded, kRemoved, kChanged };
  std::string section;  // as in FleetDescription
  Kind kind = Kind::kChanged;
  std::vector<KeyChange> keys = {};  // of one that was changed
  bool operator==(const SectionChange&) const = default;

  // Returns "llama-a" for the section "engine llama-a"; empty if the section is
  // not an engine.
  std::string Engine() const;
};

// Returns the changes that turn `before` into `after`, in the order of the
// sections.
std::vector<SectionChange> Differences(const FleetDescription& before,
                                       const FleetDescription& after);

// True if a running engine must be restarted for the change, because the key
// affects how it is started.
bool NeedsRestart(const SectionChange& change);

// Returns the [[engine]] of this name; null if there is none.
const SectionDescription* EngineIn(const FleetDescription& description,
                                   const std::string& name);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FLEET_DESCRIPTION_H_
