#include "tools/lab/process/etcd_member.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace fineserve::process {
namespace {

std::string Url(const std::string& host, uint16_t port) {
  return "http://" + host + ":" + std::to_string(port);
}

std::string NameOf(size_t index) { return "m" + std::to_string(index); }

}  // namespace

bool HasEtcd() {
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/etcd").c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::vector<std::string> EtcdCommand(const std::vector<EtcdAddress>& members,
                                     size_t index, const std::string& folder,
                                     uint64_t quota_bytes) {
  std::string cluster;
  for (size_t i = 0; i < members.size(); ++i) {
    cluster += (i == 0 ? "" : ",") + NameOf(i) + "=" +
               Url(members[i].host, members[i].peer_port);
  }
  const EtcdAddress& own = members[index];
  const std::string clients = Url(own.host, own.client_port);
  const std::string peers = Url(own.host, own.peer_port);
  std::vector<std::string> command = {
      "etcd", "--name", NameOf(index), "--data-dir",
      folder + "/" + NameOf(index), "--listen-client-urls", clients,
      "--advertise-client-urls", clients, "--listen-peer-urls", peers,
      "--initial-advertise-peer-urls", peers, "--initial-cluster", cluster,
      // Only the token distinguishes two clusters of one test.
      "--initial-cluster-token", folder, "--logger", "zap", "--log-level",
      "panic"};
  if (quota_bytes != 0) {
    command.insert(command.end(),
                   {"--quota-backend-bytes", std::to_string(quota_bytes)});
  }
  return command;
}

}  // namespace fineserve::process
