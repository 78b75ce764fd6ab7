#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <utility>

#include "braid/server/server.h"
#include "golden/support/forward.h"
#include "golden/support/random_model.h"
#include "server/client.h"

namespace braid::server {

inline constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}";

inline ServerConfig config_for(const std::string& model) {
  ServerConfig config{.model = model, .name = "tiny", .version = "0.0.test"};
  config.http.port = 0;
  config.http.read_seconds = 1;
  config.http.max_body = 200000;
  config.log = LogFormat::none;
  config.grammars.program = BRAID_BIN_DIR "/braid";
  config.engine.threads = 1;
  config.engine.max_context = 512;
  config.scheduler.max_running = 8;
  config.scheduler.max_step_tokens = 256;
  config.defaults = SamplingParams{};
  return config;
}

// After its requests a server holds no page and no request.
inline void expect_nothing_left(int port) {
  Json stats;
  for (int i = 0; i < 600; ++i) {
    Client client(port);
    stats = client.get("/stats").json();
    if (stats["running"] == 0 && stats["waiting"] == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(stats["running"], 0);
  EXPECT_EQ(stats["waiting"], 0);
  EXPECT_EQ(stats["kv_pages"]["held"], 0) << "pages are held by nobody";
}

class ServerTest : public testing::Test {
 protected:
  void TearDown() override { expect_nothing_left(server_->port()); }
  static void SetUpTestSuite() {
    folder_ = new golden::Folder("server");
    write_hf_folder(golden::load_random_model("smollm2"), folder_->path());
    const auto path = folder_->path() / "tokenizer_config.json";
    Json tokenizer = Json::object();
    if (std::ifstream file(path); file) tokenizer = Json::parse(file);
    tokenizer["chat_template"] = kTemplate;
    std::ofstream(path) << tokenizer.dump();
    server_ = new Server(config_for(folder_->path().string()), [](const std::string&) {});
    {
      Client early(server_->port());
      EXPECT_EQ(early.get("/health").status, 503);
      EXPECT_EQ(early.get("/health/live").status, 200);
      EXPECT_THAT(early.post("/v1/completions", R"({"prompt": "a"})").error(),
                  testing::HasSubstr("being loaded"));
    }
    server_->load();
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(folder_, nullptr);
  }

  static Reply post(std::string_view path, const Json& body) {
    Client client(server_->port());
    return client.post(path, body.dump());
  }
  static Json complete(Json body) {
    const Reply reply = post("/v1/completions", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }

  inline static golden::Folder* folder_ = nullptr;
  inline static Server* server_ = nullptr;
};

}  // namespace braid::server
