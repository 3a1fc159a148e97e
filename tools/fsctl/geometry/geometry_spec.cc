#include "tools/fsctl/geometry/geometry_spec.h"

#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/abi/byte_size.h"

namespace fineserve::fsctl {
namespace {

// Stores a value; false if it is invalid.
using Setter = std::function<bool(const std::string& value)>;
using Keys = std::map<std::string, Setter>;

Setter Number(uint32_t* to) {
  return [to](const std::string& value) { return absl::SimpleAtoi(value, to); };
}

Setter Bytes(uint64_t* to) {
  return [to](const std::string& value) {
    return abi::ParseByteSize(value.c_str(), to);
  };
}

template <typename Value>
Setter OneOf(std::map<std::string, Value> values, Value* to) {
  return [values = std::move(values), to](const std::string& value) {
    const auto found = values.find(value);
    if (found != values.end()) *to = found->second;
    return found != values.end();
  };
}

absl::Status SetOne(const std::string& item, const Keys& keys) {
  const std::pair<std::string, std::string> pair =
      absl::StrSplit(item, absl::MaxSplits('=', 1));
  const auto key = keys.find(pair.first);
  if (key == keys.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown key \"", pair.first, "\"; the keys are ",
        absl::StrJoin(keys, ", ", [](std::string* out, const auto& known) {
          absl::StrAppend(out, known.first);
        })));
  }
  if (!key->second(pair.second)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", pair.second, "\" is not a value for ", pair.first));
  }
  return absl::OkStatus();
}

// Reads "[NAME:]key=value,..." and returns the name.
absl::StatusOr<std::string> Read(const std::string& text, const Keys& keys) {
  const size_t colon = text.find(':');
  const std::string list =
      colon == std::string::npos ? text : text.substr(colon + 1);
  for (const auto& item : absl::StrSplit(list, ',')) {
    if (absl::Status status = SetOne(std::string(item), keys); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\": ", status.message()));
    }
  }
  return colon == std::string::npos ? text : text.substr(0, colon);
}

}  // namespace

absl::StatusOr<NamedFormat> ParseFormat(const std::string& text) {
  slab::Format format;
  format.block_tokens = 16;
  const auto name = Read(text, {{"planes", Number(&format.planes)},
                                {"page", Bytes(&format.page_bytes)},
                                {"tokens", Number(&format.block_tokens)}});
  if (!name.ok()) return name.status();
  if (format.planes == 0 || format.page_bytes == 0 ||
      format.block_tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\": a format needs planes= and page=, both above 0"));
  }
  return NamedFormat{*name, format};
}

absl::StatusOr<NamedFormat> ParseModel(const std::string& text) {
  slab::KvShape shape;
  const std::map<std::string, uint32_t> precisions = {
      {"fp32", 32}, {"fp16", 16}, {"bf16", 16}, {"fp8", 8},
      {"int8", 8},  {"fp4", 4},   {"int4", 4}};
  const std::map<std::string, slab::Layout> layouts = {
      {"layers", slab::Layout::kLayers},
      {"split", slab::Layout::kSplit},
      {"packed", slab::Layout::kPacked}};
  const auto name =
      Read(text, {{"layers", Number(&shape.layers)},
                  {"kv-heads", Number(&shape.kv_heads)},
                  {"head-dim", Number(&shape.head_dim)},
                  {"precision", OneOf(precisions, &shape.value_bits)},
                  {"tp", Number(&shape.tp_degree)},
                  {"quant-bytes", Bytes(&shape.quant_bytes)},
                  {"tokens", Number(&shape.block_tokens)},
                  {"layout", OneOf(layouts, &shape.layout)}});
  if (!name.ok()) return name.status();
  const absl::StatusOr<slab::Format> format = FormatOf(shape);
  if (!format.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": ", format.status().message()));
  }
  return NamedFormat{*name, *format};
}

}  // namespace fineserve::fsctl
