// Fuzzes the resolver with any name, version and flags that a program may pass
// to cuGetProcAddress or dlsym: a hook is returned only for a name that it
// implements. Also matches any pattern against any name, as rules and stacks
// may combine them.
#include <stdlib.h>
#include <string.h>

#include <string>

#include "shim/classify/rule_matcher.h"
#include "shim/hooks/hook_table.h"
#include "tests/fuzz/target.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

// True if `name` is the hook's name, apart from what versions and variants
// append.
bool IsNameOf(fineserve::abi::Hook hook, const std::string& name) {
  const std::string symbol =
      fineserve::abi::kHookSymbols[static_cast<size_t>(hook)];
  const size_t stem = name.find('_');
  return symbol.compare(0, name.substr(0, stem).size(), name.substr(0, stem)) ==
         0;
}

std::vector<uint8_t> Seed(int version, uint8_t flags, const std::string& text) {
  std::vector<uint8_t> bytes(sizeof(version));
  memcpy(bytes.data(), &version, sizeof(version));
  bytes.push_back(flags);
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

}  // namespace

std::vector<std::vector<uint8_t>> fineserve::fuzz::Seeds() {
  return {Seed(12000, 2, "cuMemAllocAsync"), Seed(3020, 0, "cuMemAlloc"),
          Seed(11030, 0, "cuGetProcAddress"), Seed(0, 0, "dlsym"),
          Seed(1, 0, std::string("a|_Z*1ab*\0_ZN1abEv", 18))};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  using fineserve::abi::Hook;
  int version = 0;
  if (count < sizeof(version) + 1) return 0;
  memcpy(&version, bytes, sizeof(version));
  const uint8_t flags = bytes[sizeof(version)];
  const std::string text(reinterpret_cast<const char*>(bytes) + 5, count - 5);
  const std::string name = text.c_str();
  const Hook requested =
      fineserve::shim::HookForRequest(name.c_str(), version, flags);
  Require(requested == Hook::kNone || IsNameOf(requested, name));
  const Hook symbol = fineserve::shim::HookForSymbol(name.c_str());
  Require(symbol == Hook::kNone || IsNameOf(symbol, name));
  if (name.size() < text.size()) {
    fineserve::shim::Matches(name.c_str(), text.c_str() + name.size() + 1);
  }
  // A pattern without special characters matches itself.
  if (name.find_first_of("|*") == std::string::npos) {
    Require(fineserve::shim::Matches(name.c_str(), name.c_str()));
  }
  return 0;
}
