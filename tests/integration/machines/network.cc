#include "tests/integration/machines/network.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <utility>

#include "kernels/driver/descriptor.h"

namespace fineserve::integration {
namespace {

std::string NamespaceOf(const std::string& path) {
  std::array<char, PATH_MAX> text = {};
  const ssize_t got = readlink(path.c_str(), text.data(), text.size() - 1);
  return got < 0 ? "" : text.data();
}

// A TUN device of the calling thread's network namespace.
driver::Descriptor MakeDevice(const char* name) {
  driver::Descriptor device(
      open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request = {};
  strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(device.get(), TUNSETIFF, &request) != 0) {
    ADD_FAILURE() << "TUNSETIFF: " << strerror(errno);
  }
  return device;
}

}  // namespace

std::string Network::Trouble() {
  const Finished made =
      RunToEnd({"sh", "-c", "unshare --net ip tuntap add eth0 mode tun"}, {});
  if (made.code == 0) return "";
  return "network namespaces and TUN devices are not permitted here, or "
         "iproute2 is missing: " +
         made.err;
}

std::unique_ptr<Process> Network::NewNamespace() {
  auto holder = std::make_unique<Process>(
      std::vector<std::string>{"unshare", "--net", "sleep", "infinity"},
      Process::Environment{});
  EXPECT_TRUE(Eventually([&] {
    const std::string its = NamespaceOf(PathOf(*holder));
    return !its.empty() && its != NamespaceOf("/proc/self/ns/net");
  })) << holder->Stderr();
  return holder;
}

std::string Network::PathOf(const Process& holder) {
  return "/proc/" + std::to_string(holder.pid()) + "/ns/net";
}

bool Network::Run(const Process& holder,
                  const std::vector<std::string>& command) {
  std::vector<std::string> words = {"nsenter", "--net=" + PathOf(holder)};
  words.insert(words.end(), command.begin(), command.end());
  const Finished done = RunToEnd(words, {});
  EXPECT_EQ(done.code, 0) << done.err;
  return done.code == 0;
}

Network::Network(int machines) {
  std::vector<driver::Descriptor> devices;
  for (int i = 0; i < machines; ++i) {
    machines_.push_back(NewNamespace());
    const Process& machine = *machines_.back();
    InThreadOn(i, [&] { devices.push_back(MakeDevice("eth0")); });
    Run(machine, {"sh", "-c",
                  "ip addr add " + Host(i) +
                      "/24 dev eth0 && ip link set eth0 up && "
                      "ip link set lo up"});
  }
  switch_.emplace(std::move(devices));
}

std::vector<std::string> Network::On(
    int machine, const std::vector<std::string>& command) const {
  std::vector<std::string> words = {"nsenter",
                                    "--net=" + PathOf(*machines_[machine])};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void Network::InThreadOn(int machine, const std::function<void()>& act) const {
  std::thread([&] {
    const driver::Descriptor its(
        open(PathOf(*machines_[machine]).c_str(), O_RDONLY | O_CLOEXEC));
    if (setns(its.get(), CLONE_NEWNET) != 0) {
      ADD_FAILURE() << "setns: " << strerror(errno);
      return;
    }
    act();
  }).join();
}

std::string Network::Host(int machine) {
  return "10.93.0." + std::to_string(machine + 1);
}

}  // namespace fineserve::integration
