// What deploy/ watches exists in /metrics.
#include <regex>
#include <set>

#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::set<std::string> matches(const std::string& text, const char* pattern) {
  std::set<std::string> all;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    all.insert((*it)[1]);
  return all;
}

// Names of metrics in expressions that a server's /metrics does not have.
std::set<std::string> unknown_names(const std::string& expressions, const std::string& metrics) {
  const std::set<std::string> known = matches(metrics, "(?:^|\n)(braid:[a-z0-9_]+)[ {]");
  std::set<std::string> unknown;
  for (const std::string& name : matches(expressions, "(braid:[a-z0-9_]+)"))
    if (!known.contains(name)) unknown.insert(name);
  return unknown;
}

TEST_F(ServerTest, DeployWatchesMetricsThatExist) {
  complete({{"prompt", "a"}, {"max_tokens", 2}, {"ignore_eos", true}});
  Client client(server_->port());
  const std::string metrics = client.get("/metrics").body;
  for (const char* name : {"grafana/braid.json", "prometheus/braid.rules.yml"}) {
    std::ifstream file(std::string(BRAID_TEST_DATA) + "/../deploy/" + name);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_GE(matches(text, "(braid:[a-z0-9_]+)").size(), 5u) << name;
    EXPECT_THAT(unknown_names(text, metrics), IsEmpty()) << name;
  }
  EXPECT_THAT(unknown_names("rate(braid:steps_total[1m]) / braid:step_total", metrics),
              UnorderedElementsAre("braid:step_total"));
}

}  // namespace
}  // namespace braid::server
