#include "tools/fsctl/move/move_output.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

std::string MoveText(const std::string& engine, const abi::MoveDone& done) {
  const bool out = done.place == abi::Place::kHost;
  std::string text =
      absl::StrCat(engine, done.moved == 0 ? " was there already: " : ": ",
                   Size(done.bytes), out ? " left the GPU" : " is on the GPU");
  if (done.processes > 1) {
    absl::StrAppend(&text, " (", done.processes, " processes)");
  }
  if (out && done.pinned_bytes > 0) {
    absl::StrAppend(&text, "; ", Size(done.pinned_bytes),
                    " stays, since it was exported");
  }
  if (out) absl::StrAppend(&text, "; the next request brings it back");
  return text + "\n";
}

std::string MoveJson(const std::string& engine, const abi::MoveDone& done) {
  const nlohmann::ordered_json json = {
      {"id", done.engine_id},
      {"name", engine},
      {"place", done.place == abi::Place::kHost ? "host" : "gpu"},
      {"processes", done.processes},
      {"moved", done.moved},
      {"bytes", done.bytes},
      {"pinned_bytes", done.pinned_bytes}};
  return JsonText(json);
}

}  // namespace fineserve::fsctl
