#ifndef TOOLS_LAB_STAGE_FLEET_TEXT_H_
#define TOOLS_LAB_STAGE_FLEET_TEXT_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fineserve::stage {

class TomlValue;
using TomlKeys = std::vector<std::pair<std::string, TomlValue>>;

// A value of a TOML file: a text without characters that need an escape, a
// list of such texts or of such lists, a number or a truth value.
class TomlValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor): for lists of keys.
  TomlValue(const char* text) : TomlValue(std::string(text)) {}
  TomlValue(const std::string& text) : text_('"' + text + '"') {}
  TomlValue(const std::vector<std::string>& texts);
  TomlValue(const std::vector<std::vector<std::string>>& lists);
  TomlValue(bool value) : text_(value ? "true" : "false") {}
  template <typename Number,
            typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  TomlValue(Number number) : text_(absl::StrCat(number)) {}
  // NOLINTEND(google-explicit-constructor)
  static TomlValue InlineTable(const TomlKeys& keys);
  // A model's `profile` in the fleet file: durations of a step in µs.
  static TomlValue Profile(double base_us, double per_token_us,
                           double per_sequence_us);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Builds the text of a fleet file, or of another TOML file, table by table.
class FleetText {
 public:
  // `header` includes its brackets: "[planner]", "[[model]]".
  FleetText& Table(const std::string& header, const TomlKeys& keys);
  // Adds [proxy], which listens on loopback at `port`; 0: at a port that it
  // chooses.
  FleetText& Proxy(const TomlKeys& keys = {}, uint16_t port = 0);
  FleetText& Model(const std::string& name, const TomlKeys& keys);
  // An engine on loopback.
  FleetText& Engine(const std::string& name, const std::string& model,
                    uint16_t port, const TomlKeys& keys = {});
  FleetText& Append(const std::string& text);

  const std::string& text() const { return text_; }
  void WriteTo(const std::string& path) const;

 private:
  std::string text_;
};

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_FLEET_TEXT_H_
