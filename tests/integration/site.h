#ifndef TESTS_INTEGRATION_SITE_H_
#define TESTS_INTEGRATION_SITE_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "tools/lab/process/eventually.h"
#include "tools/lab/stage/figures.h"
#include "tools/lab/stage/http_client.h"
#include "tools/lab/stage/json_value.h"
#include "tools/lab/stage/machine.h"
#include "tools/lab/stage/process.h"

namespace fineserve::integration {

using process::Breathe;
using process::Eventually;
using process::With;
using process::Words;
using stage::Finished;
using stage::HttpClient;
using stage::HttpResponse;
using stage::IsJson;
using stage::JsonAt;
using stage::JsonInt;
using stage::JsonText;
using stage::Process;
using stage::RunToEnd;

// A separate machine for each test, whose memory is not zero by chance.
class Site : public ::testing::Test, protected stage::Machine {
 protected:
  Site() { Set("EMUCUDA_POISON", "165"); }

  // Free memory of the device, as an engine sees it.
  static uint64_t FreeBytes(Process& engine) {
    return static_cast<uint64_t>(
        stage::FigureIn(engine.Ask("checkfree"), "free"));
  }
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_SITE_H_
