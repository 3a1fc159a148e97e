#ifndef TESTS_INTEGRATION_PAGE_BROWSER_H_
#define TESTS_INTEGRATION_PAGE_BROWSER_H_

#include <string>

#include "tests/integration/site.h"

namespace fineserve::integration {

// A headless Chromium with one page, driven by browser.py. Failures of the page
// or the browser fail the test.
class Browser {
 public:
  Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;
  // Shuts the browser down in order, so that its profile is removed.
  ~Browser();

  void Open(const std::string& url) { Command("open " + url); }
  // Returns the value of an expression on the page, as JSON.
  std::string Eval(const std::string& expression) {
    return Command("eval " + expression);
  }
  // Waits for the expression to become true; false if it does not.
  bool Becomes(const std::string& expression);
  // "ArrowRight", "Tab", …
  void Press(const std::string& key) { Command("key " + key); }
  // In CSS pixels.
  void Resize(int width, int height);
  // "prefers-color-scheme=dark"
  void Prefer(const std::string& feature) { Command("media " + feature); }
  void Screenshot(const std::string& path) { Command("shot " + path); }
  // The console's complaints, and the fetched URLs, as JSON.
  std::string Errors() { return Command("errors"); }
  std::string Fetched() { return Command("fetched"); }

 private:
  std::string Command(const std::string& line);

  Process process_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_PAGE_BROWSER_H_
