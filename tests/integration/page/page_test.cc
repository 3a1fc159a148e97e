// The proxy's page in a real browser, over real daemons and engines. It shows
// what happens, and nothing else is needed to see it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/integration/page/browser.h"
#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageTest : public ServingSite {
 protected:
  void SetUp() override {
    StartEngines();
    StartProxy();
    browser_ = std::make_unique<Browser>();
    browser_->Resize(1280, 900);
    browser_->Open(Address());
    ASSERT_TRUE(browser_->Becomes(kLive)) << Text("#link");
    ASSERT_TRUE(browser_->Becomes("document.querySelector('canvas.map')"));
  }

  // Starts the daemon, and the engine "wide" with a view.
  virtual void StartEngines() {
    const uint16_t port = process::FreePort();
    WriteFleet({{"wide", 4096, port}}, "fail_open");
    StartDaemonOfFleet();
    wide_ = StartTiny("wide", port,
                      "--view --page 64KiB --speed 20 --max-model-len 4096");
  }

  void TearDown() override {
    if (browser_ == nullptr) return;
    Keep("end");
    if (sees_errors_) return;  // which a browser counts as its own
    EXPECT_EQ(browser_->Errors(), "[]");
    EXPECT_EQ(browser_->Fetched(),
              "[\"" + Address() + "\", \"" + Address() + "frames\"]");
  }

  std::string Address() const {
    return "http://127.0.0.1:" + std::to_string(admin_port()) + "/";
  }
  // The element's text, as JSON.
  std::string Text(const std::string& selector) {
    return browser_->Eval("document.querySelector('" + selector +
                          "').innerText");
  }
  // Keeps a picture for people to look at, if FINESERVE_PAGE_PICTURES names a
  // folder.
  void Keep(const std::string& name) {
    const char* folder = getenv("FINESERVE_PAGE_PICTURES");
    if (folder == nullptr) return;
    const std::string test =
        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    browser_->Screenshot(std::string(folder) + "/" + test + "-" + name +
                         ".png");
  }
  // Starts an engine that holds two whole slabs.
  std::unique_ptr<Process> StartOther(const std::string& name = "other") {
    return StartEngine("8MiB", {}, {{"FINESERVE_ENGINE", name}});
  }

  static constexpr char kLive[] =
      "document.querySelector('#link').innerText === 'live'";
  std::unique_ptr<TinyEngine> wide_;
  std::unique_ptr<Browser> browser_;
  bool sees_errors_ = false;
};

// The number of slabs painted in the colour that the table of engines shows
// beside "other".
constexpr char kPaintedSlabs[] =
    "(() => {"
    " const row = [...document.querySelectorAll('article tbody th')]"
    "   .find((th) => th.innerText.includes('other'));"
    " if (!row) return 0;"
    " const wanted = getComputedStyle(row.querySelector('.swatch'))"
    "   .backgroundColor.match(/[0-9]+/g).slice(0, 3).join();"
    " const map = [...cards.values()][0].map;"
    " const g = map.canvas.getContext('2d');"
    " return map.states.filter((_, i) => {"
    "   const [x, y] = map.place(i);"
    "   return [...g.getImageData(x + 2, y + 2, 1, 1).data].slice(0, 3).join()"
    "     === wanted;"
    " }).length;"
    "})()";

// True if "free" has the style's present colour in the map and in the list of
// states.
constexpr char kLegendIsTheMaps[] =
    "(() => {"
    " const at = (canvas, x, y) =>"
    "   [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].join();"
    " const map = [...cards.values()][0].map;"
    " const [x, y] = map.place(map.states.indexOf('free'));"
    " const sample = [...document.querySelectorAll('.states li')]"
    "   .find((li) => li.innerText.startsWith('free')).querySelector('canvas');"
    " const own = document.createElement('canvas'), g = own.getContext('2d');"
    " g.fillStyle = cssColour('--free');"
    " g.fillRect(0, 0, 1, 1);"
    " return at(sample, 5, 5) === at(own, 0, 0) &&"
    "   at(map.canvas, x + 2, y + 2) === at(own, 0, 0);"
    "})()";

// True if the head and the words of the last column begin at the same place,
// and the words are on the line of their row.
constexpr char kColumnsAreInLine[] =
    "(() => {"
    " const box = (selector) => {"
    "   const range = document.createRange();"
    "   range.selectNodeContents(document.querySelector('#models ' + "
    "selector));"
    "   return range.getBoundingClientRect();"
    " };"
    " const head = box('th.text'), chip = box('.chip'), name = box('tbody th');"
    " return Math.abs(head.left - chip.left) < 1 &&"
    "   Math.abs(name.bottom - chip.bottom) < 3;"
    "})()";

// Two parts of the last moment's column, from 0 to 1: in the colour of "other"
// in the history's legend, and in the colour of free memory.
constexpr char kLastColumn[] =
    "(() => {"
    " const past = [...cards.values()][0].past;"
    " const item = [...past.legend.children]"
    "   .find((li) => li.innerText.includes('other'));"
    " if (!item) return [0, 0];"
    " const wanted = getComputedStyle(item.querySelector('.swatch'))"
    "   .backgroundColor.match(/[0-9]+/g).slice(0, 3).join();"
    " const own = document.createElement('canvas').getContext('2d');"
    " own.fillStyle = cssColour('--free');"
    " own.fillRect(0, 0, 1, 1);"
    " const free = [...own.getImageData(0, 0, 1, 1).data].slice(0, 3).join();"
    " const {width, height} = past.canvas;"
    " const x = past.x(past.times[past.first], width) + 1;"
    " const column = past.canvas.getContext('2d')"
    "   .getImageData(x, 0, 1, height).data;"
    " const part = (colour) => [...Array(height).keys()].filter((y) =>"
    "   [...column.slice(4 * y, 4 * y + 3)].join() === colour).length / height;"
    " return [part(wanted), part(free)];"
    "})()";

TEST_F(PageTest, TheLastHourIsStackedByEngine) {
  ASSERT_TRUE(browser_->Becomes("past && past.gpus.length === 1"));
  EXPECT_EQ(browser_->Eval("past.times[0] < performance.timeOrigin"), "true")
      << "it began without a viewer";
  auto other = StartOther();
  const std::string column = kLastColumn;
  ASSERT_TRUE(browser_->Becomes("Math.abs(" + column + "[0] - 2 / 8) < .02"))
      << browser_->Eval(column);
  const std::string free =
      "(() => {"
      " const [pool] = past.gpus, of = (all) => all[all.length - 1];"
      " return 1 - sum(pool.engines, (e) => of(e.held)) / of(pool.present);"
      "})()";
  EXPECT_EQ(browser_->Eval("Math.abs(" + column + "[1] - " + free + ") < .02"),
            "true");
  browser_->Eval("document.querySelector('canvas.past').focus()");
  browser_->Press("End");
  EXPECT_THAT(Text(".past-text"), HasSubstr("other ("));
  EXPECT_THAT(Text(".past-text"), HasSubstr(") 16 MiB, free "));
  EXPECT_THAT(Text(".past-text"), HasSubstr(", of 64 MiB."));
  Keep("held");
  other->EndBy(SIGKILL);
  ASSERT_TRUE(browser_->Becomes(
      "past.gpus[0].engines.find((e) => e.name === 'other').held.at(-1) === "
      "0"));
  EXPECT_EQ(browser_->Eval("document.querySelector('canvas.past').ariaLabel"
                           ".includes('other 0 B to 16 MiB')"),
            "true")
      << "it stays in its past";
  EXPECT_EQ(browser_->Eval(column + "[0]"), "0");
  daemon_->EndBy(SIGKILL);
  ASSERT_TRUE(browser_->Becomes("past.gpus[0].present.at(-1) === null"));
  EXPECT_EQ(browser_->Eval(column + "[1]"), "0") << "a gap";
  browser_->Press("End");
  EXPECT_THAT(Text(".past-text"), HasSubstr(": no daemon answered."));
  Keep("gap");
}

TEST_F(PageTest, ASlabThatGoesToAnotherEngineIsHandedOver) {
  auto other = StartOther();
  ASSERT_TRUE(browser_->Becomes(std::string(kPaintedSlabs) + " === 2"));
  other->EndBy(SIGKILL);
  ASSERT_TRUE(browser_->Becomes(std::string(kPaintedSlabs) + " === 0"));
  EXPECT_THAT(Text("#hand-overs"), HasSubstr("No slab went"));
  const auto third = StartOther("third");
  const std::string line =
      "document.querySelector('#hand-overs li')?.innerText";
  ASSERT_TRUE(browser_->Becomes("/other → .*third: 2 slabs, 16 MiB/.test(" +
                                line + ")"))
      << Text("#hand-overs");
  Keep("handed-over");
}

TEST_F(PageTest, HandOversAreOfOnePoolAndGroupedByTheirEnds) {
  browser_->Eval(
      "window.note = (hands, epoch, names, owners) => hands.note('g', {epoch, "
      "slab_bytes: 10, engines: names.map((name) => ({name}))}, owners)");
  const auto list_of = [&](const std::string& notes) {
    return browser_->Eval("(() => { const h = new HandOvers();" + notes +
                          "return h.list.map((one) => [one.from, one.to, "
                          "one.slabs, one.bytes].join(' ')); })()");
  };
  EXPECT_EQ(list_of("note(h, '1', ['a', 'b'], ['a', 'a', '', 'b']);"
                    "note(h, '1', ['a', 'b'], ['', 'b', '', 'b']);"
                    "note(h, '1', ['a', 'b'], ['b', 'b', 'b', 'a']);"),
            "[\"b a 1 10\", \"a b 2 20\"]");
  EXPECT_EQ(list_of("note(h, '1', ['a'], ['a']); note(h, '2', ['b'], ['b']);"),
            "[]")
      << "another pool";
  EXPECT_EQ(
      list_of("note(h, '1', ['a'], ['a']); note(h, '1', [], ['engine 7']);"
              "note(h, '1', ['a'], ['a']);"),
      "[]")
      << "an owner that the table does not name yet";
  EXPECT_EQ(list_of("for (let n = 0; n < 30; ++n) note(h, '1', ['e' + n], "
                    "['e' + n]);"
                    "h.list = [h.list[0].from, h.list.length].map((from) => "
                    "({from}));"),
            "[\"e28   \", \"20   \"]")
      << "the newest twenty";
}

// fsctl up runs the engine.
class LogPanelTest : public PageTest {
 protected:
  void StartEngines() override {
    WriteFleet({TinyserveOf("wide")}, "fail_open");
    StartDaemonOfFleet();
    up_ = LaunchUp();
    up_->ReadLineWith("wide: started");
  }
  void TearDown() override {
    sees_errors_ = true;
    PageTest::TearDown();
  }

  std::unique_ptr<Process> up_;
};

TEST_F(LogPanelTest, AnEnginesLogIsShownAsItGrows) {
  const std::string button = "document.querySelector('#log-engines button')";
  ASSERT_TRUE(browser_->Becomes(button));
  EXPECT_EQ(browser_->Eval(button + ".innerText"), "\"wide\"");
  browser_->Eval(button + ".click()");
  ASSERT_TRUE(
      browser_->Becomes("document.querySelector('#log-text').innerText"
                        ".includes('ready port=')"));
  const std::string said = Fsctl({"--json", "logs", "wide"}).out;
  const size_t from = said.find("\"path\"") + 6, quote = said.find('"', from);
  std::ofstream(said.substr(quote + 1, said.find('"', quote + 1) - quote - 1),
                std::ios::app)
      << "10 %\r<b id=evil>\033[31mred\033[0m</b>\n";
  ASSERT_TRUE(
      browser_->Becomes("document.querySelector('#log-text').innerText"
                        ".endsWith('\\n<b id=evil>red</b>\\n')"))
      << Text("#log-text");
  EXPECT_EQ(browser_->Eval("document.querySelector('#evil')"), "null");
  Keep("log");
  browser_->Resize(400, 900);
  EXPECT_TRUE(browser_->Becomes("innerWidth === 400"));
  EXPECT_EQ(browser_->Eval("document.documentElement.scrollWidth"), "400");
  Keep("log-400");
  EXPECT_THAT(browser_->Errors(), Not(HasSubstr("Content Security Policy")));
  up_->EndBy(SIGINT);
  ASSERT_TRUE(
      browser_->Becomes("document.querySelector('#log-note').innerText"
                        ".startsWith('no fsctl up of this fleet')"));
  browser_->Eval("document.querySelector('#log-close').click()");
  EXPECT_EQ(browser_->Eval("document.querySelector('#log').hidden"), "true");
}

// Two replicas on two GPUs.
class ReplicasPageTest : public PageTest {
 protected:
  void StartEngines() override {
    Set("EMUCUDA_DEVICES", "2");
    Served served[] = {{"wide", 4096, process::FreePort()},
                       {"twin", 4096, process::FreePort()}};
    for (int i = 0; i < 2; ++i) {
      served[i].gpu = process::GpuInLog(
          StartDaemon({"--gpu", "emulated:" + std::to_string(i)})->Stderr());
    }
    served[1].replica_of = "wide";
    WriteFleet({served[0], served[1]}, "fail_open");
    for (int i = 0; i < 2; ++i) {
      daemons_[i] = StartDaemon(Words(
          "--gpu emulated:" + std::to_string(i) +
          " --pool 64MiB --slab 8MiB --planes 4 --fleet " + fleet_path()));
      engines_[i] = std::make_unique<TinyEngine>(
          Program("tinyserve"), "wide",
          Words("--view --weights 64MiB --freeze --speed 20 --port " +
                std::to_string(served[i].port)),
          EngineEnvironment(
              {{"FINESERVE_ENGINE", served[i].name},
               {"FINESERVE_EVICT", "auto"},
               {"CUDA_VISIBLE_DEVICES", i == 0 ? "0,1" : "1,0"}}));
    }
  }

  std::unique_ptr<Process> daemons_[2];
  std::unique_ptr<TinyEngine> engines_[2];
};

TEST_F(ReplicasPageTest, ChipSaysWhoseWeightsAnEngineReads) {
  const auto chip_is = [&](const std::string& engine, const std::string& text) {
    return "[...document.querySelectorAll('#models .chip')].some((chip) => /^" +
           text + "$/.test(chip.innerText) && chip.title.startsWith('" +
           engine + ": '))";
  };
  ASSERT_TRUE(browser_->Becomes(chip_is("wide", "● wide"))) << Text("#models");
  const Finished drop = Fsctl({"drop", "wide", "--from", "twin"});
  ASSERT_EQ(drop.code, 0) << drop.err;
  ASSERT_TRUE(browser_->Becomes(chip_is(
      "wide", "◒ wide reads 64 MiB of weights from twin since [0-9:]+")))
      << Text("#models");
  EXPECT_EQ(browser_->Eval(chip_is("twin", "● twin")), "true")
      << Text("#models");
  Keep("reads");
  const Finished restore = Fsctl({"restore", "wide"});
  ASSERT_EQ(restore.code, 0) << restore.err;
  EXPECT_TRUE(browser_->Becomes(chip_is("wide", "● wide"))) << Text("#models");
}

TEST_F(PageTest, ASlabThatMovesIsSeenToMove) {
  EXPECT_EQ(browser_->Eval(kPaintedSlabs), "0");
  auto other = StartOther();
  ASSERT_TRUE(browser_->Becomes(std::string(kPaintedSlabs) + " === 2"));
  EXPECT_THAT(Text("#gpus"), HasSubstr("full 2"));
  EXPECT_THAT(Text("#gpus"), HasSubstr("16 MiB leased whole"));
  Keep("held");
  other->EndBy(SIGKILL);
  ASSERT_TRUE(browser_->Becomes(std::string(kPaintedSlabs) + " === 0"));
}

TEST_F(PageTest, RequestsAndTheirWayAreSeen) {
  HttpClient client(port());
  client.Send("POST", "/v1/completions",
              wide_->Body(Prompt(1, 100), 8, ", \"stream\": true"));
  ASSERT_EQ(client.ReadHead().status, 200);
  client.ReadBody();
  EXPECT_EQ(HttpClient(port()).Ask("POST", "/v1/completions", "{").status, 400);
  ASSERT_TRUE(browser_->Becomes(
      "document.querySelectorAll('#requests li').length === 1"));
  EXPECT_THAT(Text("#requests"), HasSubstr("wide"));
  EXPECT_THAT(Text("#requests"), Not(HasSubstr("→"))) << "one name is enough";
  EXPECT_THAT(Text("#requests"), HasSubstr("200"));
  EXPECT_THAT(Text("#models"), HasSubstr("100.0 % of 1"));
  EXPECT_EQ(browser_->Eval("document.querySelectorAll('#requests .bar "
                           "span').length > 1"),
            "true");
}

TEST_F(PageTest, PageShowsALoad) {
  AnswerLoad load(*wide_, port(), 12, {400, 200});
  const auto other = StartOther();
  ASSERT_TRUE(browser_->Becomes(
      "Number(document.querySelector('#models td[data-label=Running]')"
      ".innerText) > 3"));
  ASSERT_TRUE(browser_->Becomes(
      "document.querySelectorAll('#requests li').length > 8"));
  Keep("1280");
  EXPECT_EQ(browser_->Eval(kColumnsAreInLine), "true");
  browser_->Resize(400, 900);
  EXPECT_TRUE(browser_->Becomes("innerWidth === 400"));
  EXPECT_EQ(browser_->Eval("document.documentElement.scrollWidth"), "400");
  Keep("400");
  load.End();
  EXPECT_GT(load.right(), 0);
  EXPECT_EQ(load.wrong(), 0);
}

TEST_F(PageTest, ADaemonsRestartIsSurvived) {
  browser_->Eval("window.mark = 'same page'");
  daemon_->EndBy(SIGKILL);
  ASSERT_TRUE(
      browser_->Becomes("document.querySelector('.away-note:not([hidden])')"));
  EXPECT_THAT(Text(".away-note"), HasSubstr("daemon away since"));
  EXPECT_EQ(browser_->Eval("document.title"), "\"⚠ FineServe\"");
  ASSERT_TRUE(browser_->Becomes(
      "document.querySelector('#alarms').innerText.includes('No daemon')"));
  Keep("away");
  browser_->Resize(400, 900);
  browser_->Prefer("prefers-color-scheme=dark");
  // Does not evaluate dark.matches, because a script that queries it in
  // Chromium takes the event away from the listeners.
  EXPECT_TRUE(browser_->Becomes("innerWidth === 400"));
  EXPECT_TRUE(browser_->Becomes(kLegendIsTheMaps));
  EXPECT_EQ(browser_->Eval("document.documentElement.scrollWidth"), "400");
  Keep("away-400-dark");
  StartDaemonOfFleet();
  ASSERT_TRUE(browser_->Becomes(
      "document.querySelector('.away-note').hidden && document.querySelector("
      "'#gpus').innerText.includes('daemon " +
      std::to_string(daemon_->pid()) + "')"));
  EXPECT_EQ(browser_->Eval("window.mark"), "\"same page\"");
  EXPECT_EQ(browser_->Eval(kLive), "true");
}

TEST_F(PageTest, TheProxysEndIsShownAndItsReturnSeen) {
  const std::string admin = "127.0.0.1:" + std::to_string(admin_port());
  proxy_->EndBy(SIGKILL);
  ASSERT_TRUE(browser_->Becomes(
      "document.querySelector('#link.lost')?.innerText.startsWith("
      "'no connection to the proxy since')"));
  Keep("lost");
  proxy_ = LaunchProgram(
      {"fineserve-proxy", "--fleet", fleet_path(), "--admin", admin});
  ASSERT_TRUE(browser_->Becomes(kLive)) << proxy_->Stderr();
  EXPECT_EQ(browser_->Eval("document.querySelector('#link.lost')"), "null");
  sees_errors_ = true;
}

TEST_F(PageTest, KeysWalkOverTheSlabsAndSayWhatTheyAre) {
  const auto other = StartOther();
  ASSERT_TRUE(browser_->Becomes(std::string(kPaintedSlabs) + " === 2"));
  browser_->Press("Tab");
  EXPECT_EQ(browser_->Eval("document.activeElement.className"), "\"map\"");
  EXPECT_THAT(Text(".map-text"), HasSubstr("Slab 0 of 8: "));
  browser_->Press("ArrowRight");
  EXPECT_THAT(Text(".map-text"), HasSubstr("Slab 1 of 8: "));
  browser_->Press("End");
  EXPECT_THAT(Text(".map-text"), HasSubstr("Slab 7 of 8: "));
  browser_->Press("ArrowRight");
  EXPECT_THAT(Text(".map-text"), HasSubstr("Slab 7 of 8: ")) << "the last one";
  browser_->Press("Home");
  const std::string first =
      browser_->Eval("[...cards.values()][0].map.owners.indexOf('other')");
  for (int n = atoi(first.c_str()); n > 0; --n) browser_->Press("ArrowRight");
  EXPECT_THAT(Text(".map-text"),
              HasSubstr("Slab " + first + " of 8: full, of other ("));
  EXPECT_NE(browser_->Eval("document.activeElement.ariaLabel"), "null");
}

TEST_F(PageTest, ItFitsNarrowAndWideScreensInLightAndDark) {
  const auto other = StartOther();
  ASSERT_TRUE(browser_->Becomes(std::string(kPaintedSlabs) + " === 2"));
  const std::string back = "getComputedStyle(document.body).backgroundColor";
  const std::string light = browser_->Eval(back);
  for (const int width : {400, 1280}) {
    browser_->Resize(width, 900);
    EXPECT_TRUE(browser_->Becomes("innerWidth === " + std::to_string(width)));
    EXPECT_EQ(browser_->Eval("document.documentElement.scrollWidth"),
              std::to_string(width));
    Keep(std::to_string(width));
  }
  browser_->Prefer("prefers-color-scheme=dark");
  EXPECT_TRUE(browser_->Becomes(back + " !== " + light));
  EXPECT_TRUE(browser_->Becomes(kLegendIsTheMaps));
}

}  // namespace
}  // namespace fineserve::integration
