#ifndef TOOLS_LAB_PROCESS_ETCD_MEMBER_H_
#define TOOLS_LAB_PROCESS_ETCD_MEMBER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::process {

// True if Debian's etcd is installed; tests that need it skip without it.
bool HasEtcd();
inline constexpr char kNoEtcd[] =
    "etcd is not installed; run scripts/setup, or apt-get install etcd-server";

// Address of a member of a test's etcd cluster: plain HTTP, on the loopback or
// on a network that belongs to the test.
struct EtcdAddress {
  std::string host = "127.0.0.1";
  uint16_t client_port = 0;
  uint16_t peer_port = 0;
};

// Returns the command that runs member `index` of a new cluster of all
// `members`, with its files in `folder`. `quota_bytes` limits its keys; 0:
// etcd's default.
std::vector<std::string> EtcdCommand(const std::vector<EtcdAddress>& members,
                                     size_t index, const std::string& folder,
                                     uint64_t quota_bytes = 0);

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_ETCD_MEMBER_H_
