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
                    " stays, since another process or device has it");
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

std::string StoreText(const abi::StoreAnswer& store, uint64_t others_bytes) {
  const uint64_t needed = store.held_bytes - store.spare_bytes;
  std::string text =
      absl::StrCat("the store holds ", Size(store.held_bytes), " in ",
                   store.copies, store.copies == 1 ? " copy" : " copies",
                   ", and may hold ", Size(store.limit_bytes), "\n  ",
                   Size(needed), " is needed by engines that are evicted");
  if (store.unshared_bytes > needed + others_bytes) {
    absl::StrAppend(&text, " (", Size(store.unshared_bytes),
                    " if equal contents were not held once)");
  }
  if (others_bytes > 0) {
    absl::StrAppend(&text, "\n  ", Size(others_bytes),
                    " more is needed by them, and held in the stores of other "
                    "daemons");
  }
  absl::StrAppend(&text, "\n  ", Size(store.spare_bytes),
                  " is spare: its engines are on the GPU, and need not be "
                  "copied again\nsince the daemon's start ",
                  Size(store.copied_bytes), " was copied, and ",
                  Size(store.found_bytes), " was here already\n");
  return text;
}

std::string StoreJson(const abi::StoreAnswer& store, uint64_t others_bytes) {
  const nlohmann::ordered_json json = {
      {"held_bytes", store.held_bytes},
      {"copies", store.copies},
      {"limit_bytes", store.limit_bytes},
      {"needed_bytes", store.held_bytes - store.spare_bytes},
      {"others_bytes", others_bytes},
      {"unshared_bytes", store.unshared_bytes},
      {"spare_bytes", store.spare_bytes},
      {"copied_bytes", store.copied_bytes},
      {"found_bytes", store.found_bytes}};
  return JsonText(json);
}

}  // namespace fineserve::fsctl
