#ifndef TOOLS_LAB_DEVICE_API_DRIVER_STATE_H_
#define TOOLS_LAB_DEVICE_API_DRIVER_STATE_H_

#include <atomic>
#include <string>

#include "tools/lab/device/call/call_log.h"
#include "tools/lab/device/call/injection.h"
#include "tools/lab/device/linger/linger.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/machine/environment_settings.h"

namespace fineserve::emucuda {

// Holds whether this process can use the driver, its settings and devices, and
// the steps around every call. Thread-safe. The first call creates it; it is
// never destroyed.
//
// A child forked after Init can never use the driver: ready() returns an error
// there before anything takes a lock, so that a lock that another thread held
// at the fork cannot block the child.
class DriverState {
 public:
  static DriverState& Get();

  // Opens the devices at the first call; later calls return the first call's
  // result.
  CUresult Init();
  // Returns NOT_INITIALIZED before Init, and in a child forked after it.
  CUresult ready() const;
  bool forked() const;

  // True if device nodes can be opened now.
  bool NodesOpen() const;
  const Settings& settings() const { return settings_; }
  const DeviceList& devices() const { return devices_; }  // empty before Init
  Injection& injection() { return injection_; }
  CallLog& log() { return log_; }
  Linger& linger() { return linger_; }

 private:
  enum class State { kUninitialised, kReady, kForked };

  DriverState();
  CUresult OpenDevices(std::string* complaint);
  static void BeforeFork() EMUCUDA_NO_ANALYSIS;
  static void AfterForkInParent() EMUCUDA_NO_ANALYSIS;
  static void AfterForkInChild() EMUCUDA_NO_ANALYSIS;

  std::string complaint_;  // about the environment; set by the constructor
  Settings settings_;
  Injection injection_;
  CallLog log_;
  Linger linger_;

  // Stored with release in Init, which publishes devices_; loaded with acquire
  // in ready().
  std::atomic<State> state_{State::kUninitialised};
  Mutex init_mutex_;
  DeviceList devices_;  // const once state_ is kReady
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_DRIVER_STATE_H_
