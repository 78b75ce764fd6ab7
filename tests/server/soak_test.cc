// Many requests and many bad clients. BRAID_SOAK_REQUESTS=10000 makes it long.
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "server/fixture.h"

namespace braid::server {
namespace {

// Resident bytes of this process.
double resident() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("VmRSS:")) return 1024 * std::stod(line.substr(6));
  }
  return 0;
}

double metric(int port, const std::string& name) {
  Client client(port);
  const std::string text = client.get("/metrics").body;
  const size_t at = text.find("\nbraid:" + name + "{");
  return std::stod(text.substr(text.find('}', at) + 1));
}

void begin_request(Client& client, const Json& body) {
  const std::string text = body.dump();
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                  "application/json\r\nContent-Length: {}\r\n\r\n{}",
                  text.size(), text));
}

// Streams, whole answers, several choices, shared beginnings, and clients that go in the middle, on
// so few pages that answers are preempted.
TEST_F(ServerTest, ManyRequestsLeaveNeitherMemoryNorPagesBehind) {
  const char* given = std::getenv("BRAID_SOAK_REQUESTS");
  const int requests = given != nullptr ? std::atoi(given) : 400;
  ServerConfig config = config_for(folder_->path().string());
  config.engine.max_context = 256;
  config.kv_bytes = int64_t{5} * 64 * 3 * 2 * 3 * 16 * 4;  // pages * tokens * layers * K, V * heads
  Server server(config, [](const std::string&) {});
  server.load();
  std::atomic<int> next{0}, wrong{0};
  std::vector<double> memory(static_cast<size_t>(requests));
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < requests; i = next++) {
        std::mt19937 random(static_cast<uint32_t>(i));
        const bool goes = random() % 5 == 0;
        const Json body = {{"prompt", std::string(random() % 150, 'a') + std::to_string(i)},
                           {"max_tokens", goes ? 200 : 1 + random() % 40},
                           {"n", 1 + random() % 2},
                           {"stream", goes || random() % 2 == 0},
                           {"seed", i},
                           {"ignore_eos", true}};
        try {
          Client client(server.port());
          begin_request(client, body);
          if (goes) {
            client.wait_for(300);
          } else if (client.read().status != 200) {
            ++wrong;
          }
        } catch (const std::exception&) {
          ++wrong;
        }
        memory[static_cast<size_t>(i)] = resident();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (int i = 0; i < 600 && metric(server.port(), "num_requests_running") > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(metric(server.port(), "num_requests_running"), 0);
  EXPECT_EQ(metric(server.port(), "num_requests_waiting"), 0);
  EXPECT_EQ(metric(server.port(), "kv_cache_usage_perc"), 0) << "pages are held by nobody";
  EXPECT_GT(metric(server.port(), "num_preemptions_total"), 0);
  const size_t early = memory.size() / 5;
  const double growth =
      *std::max_element(memory.begin() + static_cast<ptrdiff_t>(early) + 1, memory.end()) /
          memory[early] -
      1;
  RecordProperty("growth_percent", fmt::format("{:.2f}", 100 * growth));
  EXPECT_LE(growth, requests >= 5000 ? 0.02 : 0.25) << memory[early] << " bytes early";
  if (requests >= 5000) {
    fmt::print("{} requests: {:.1f} MiB early, {:+.2f}% at most, {} preemptions\n", requests,
               memory[early] / (1 << 20), 100 * growth,
               metric(server.port(), "num_preemptions_total"));
  }
}

// tools/slow_clients.py measures what 1,000 of them cost others.
TEST_F(ServerTest, BadClientsKeepNobodyFromAnAnswer) {
  std::vector<std::unique_ptr<Client>> bad;
  for (int i = 0; i < 120; ++i) {
    bad.push_back(std::make_unique<Client>(server_->port()));
    if (i % 4 == 1) bad.back()->half_close();
    if (i % 4 == 2) bad.back()->send("POST /v1/completions HTTP/1.1\r\nX: ");
    if (i % 4 == 3)
      bad.back()->send("POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{");
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(complete({{"prompt", "abc"},
                        {"max_tokens", 2},
                        {"ignore_eos", true}})["usage"]["completion_tokens"],
              2);
  }
  // A client that stops to read: its request ends all the same.
  Client deaf(server_->port());
  begin_request(deaf, {{"prompt", "abc"}, {"stream", true}, {"n", 8}, {"ignore_eos", true}});
  deaf.wait_for(200);
  for (int i = 0; i < 1200 && metric(server_->port(), "num_requests_running") > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(metric(server_->port(), "num_requests_running"), 0);
}

}  // namespace
}  // namespace braid::server
