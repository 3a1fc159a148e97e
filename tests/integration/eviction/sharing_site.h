#ifndef TESTS_INTEGRATION_EVICTION_SHARING_SITE_H_
#define TESTS_INTEGRATION_EVICTION_SHARING_SITE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "daemon/contract/abi/messages.h"
#include "tests/integration/eviction/eviction_site.h"

namespace fineserve::integration {

// The workspace of 3 MiB takes two granules of 2 MiB.
inline constexpr uint64_t kWorkspaceBytes = 3 * kMiB;
inline constexpr uint64_t kSharedBytes = 4 * kMiB;

// A site whose engines open each other's workspaces by CUDA's legacy IPC.
class SharingSite : public EvictionSite {
 protected:
  static std::string After(const std::string& line, const std::string& key) {
    const size_t at = line.find(key);
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? "0" : line.substr(at + key.size());
  }
  // Returns an address in the engine's workspace.
  static uint64_t At(Process& engine, uint64_t offset = 0) {
    return std::stoull(After(engine.Ask("workspace"), "workspace=")) + offset;
  }
  static std::string HandleOf(Process& engine, uint64_t offset = 0) {
    return After(engine.Ask("share " + std::to_string(At(engine, offset))),
                 "handle=");
  }
  static uint64_t Open(Process& engine, const std::string& handle) {
    const std::string answer = engine.Ask("open " + handle);
    return std::stoull(After(answer, "opened="));
  }
  static std::string Ask(Process& engine, const std::string& command,
                         uint64_t address) {
    return engine.Ask(command + " " + std::to_string(address));
  }
  static void Poke(Process& engine, uint64_t address, uint32_t value) {
    EXPECT_EQ(engine.Ask("poke " + std::to_string(address) + " " +
                         std::to_string(value)),
              "ok poked");
  }
  static std::string Value(uint32_t value) {
    return "ok value=" + std::to_string(value);
  }
  static abi::IpcHandle Decode(const std::string& hex) {
    abi::IpcHandle handle = {};
    for (size_t i = 0; i < sizeof(handle); ++i) {
      unsigned byte = 0;
      sscanf(hex.c_str() + 2 * i, "%2x", &byte);
      reinterpret_cast<unsigned char*>(&handle)[i] =
          static_cast<unsigned char>(byte);
    }
    return handle;
  }
  // Returns fsctl's account of the engine's memory.
  std::string Explain(const Process& engine) {
    return Fsctl({"explain", std::to_string(engine.pid())}).out;
  }
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_EVICTION_SHARING_SITE_H_
