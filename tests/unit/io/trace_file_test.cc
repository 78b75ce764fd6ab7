// Traces of requests: formats, refusals, and generated loads.
#include "braid/io/trace_file.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "braid/io/trace_loads.h"
#include "unit/io/expect_error.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

std::vector<TraceRequest> all(const TraceSource& source) {
  std::vector<TraceRequest> requests;
  for (TraceRequest r; source(r);) requests.push_back(r);
  return requests;
}

TEST(TraceFile, MooncakesJsonLines) {
  const test::TempFolder folder;
  const std::string path = folder.write(
      "a.jsonl",
      "{\"timestamp\": 1000, \"input_length\": 513, \"output_length\": 7, \"hash_ids\": [3, 9]}\n"
      "\n"
      "{\"timestamp\": 1500, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [3]}\r\n"
      "{\"timestamp\": 1500.5, \"input_length\": 1, \"output_length\": 2}");
  const std::vector<TraceRequest> r = all(open_trace(path));
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(r[0].arrival, 0);
  EXPECT_EQ(r[0].input, 513);
  EXPECT_EQ(r[0].output, 7);
  EXPECT_EQ(r[0].blocks, (std::vector<int64_t>{3, 9}));
  EXPECT_DOUBLE_EQ(r[1].arrival, 0.5);
  EXPECT_EQ(r[1].output, 1) << "a prompt's step makes a token";
  EXPECT_DOUBLE_EQ(r[2].arrival, 0.5005);
  EXPECT_TRUE(r[2].blocks.empty());
}

TEST(TraceFile, AzuresTable) {
  const test::TempFolder folder;
  const std::string path = folder.write("a.csv",
                                        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                        "2024-02-28 23:59:59.500000+00:00,10,20\r\n"
                                        "2024-02-29 00:00:00.25,11,21\n"
                                        "2024-03-01 00:00:00,12,22\n");
  const std::vector<TraceRequest> r = all(open_trace(path));
  ASSERT_EQ(r.size(), 3u);
  EXPECT_NEAR(r[1].arrival, 0.75, 1e-6);
  EXPECT_NEAR(r[2].arrival, 86400.5, 1e-6) << "2024 is a leap year";
  EXPECT_EQ(r[2].input, 12);
  EXPECT_EQ(r[2].output, 22);
}

// Bytes that the program holds of its allocator.
int64_t held_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Ten million lines come through a pipe: no line is kept, and none waits for the last.
TEST(TraceFile, LongTracesAreStreamed) {
  const test::TempFolder folder;
  const struct {
    std::string name, head, line;
    int64_t lines;
  } traces[] = {
      {"a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "2024-02-28 23:59:59,10,20\n",
       10'000'000},
      {"a.jsonl", "", "{\"timestamp\":5,\"input_length\":600,\"output_length\":2}\n", 100000}};
  for (const auto& trace : traces) {
    SCOPED_TRACE(trace.name);
    const std::string path = folder.path(trace.name);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    std::thread writer([&] {
      std::ofstream out(path);
      out << trace.head;
      for (int64_t i = 0; i < trace.lines; ++i) out << trace.line;
    });
    int64_t lines = 0, before = 0, most = 0;
    {
      const TraceSource source = open_trace(path);
      for (TraceRequest r; source(r); ++lines) {
        if (lines == 1000) before = held_bytes();
        if (lines % 10000 == 0) most = std::max(most, held_bytes());
      }
    }
    writer.join();
    EXPECT_EQ(lines, trace.lines);
    EXPECT_LT(most - before, 64 << 10) << "bytes that grew with the lines";
  }
}

TEST(TraceFile, RefusalsNameFileAndLine) {
  const test::TempFolder folder;
  const auto refuse = [&](const std::string& text, const std::string& line,
                          const std::string& part) {
    const std::string path = folder.write("bad", text);
    test::expect_error(ErrorCode::kMalformed, {path + line, part}, [&] { all(open_trace(path)); });
  };
  const std::string good = "{\"timestamp\":5,\"input_length\":600,\"output_length\":2}\n";
  const auto json = [&](const std::string& time, const std::string& in, const std::string& out,
                        const std::string& more = "") {
    return good + "{\"timestamp\":" + time + ",\"input_length\":" + in +
           ",\"output_length\":" + out + more + "}\n";
  };
  refuse("", ":", "empty");
  refuse(good + std::string(5 << 20, '7'), ":2:", "a line of more than 4194304 bytes");
  refuse("a,b\n", ":1:", "wanted a JSON object or the header");
  refuse(good + "{\"timestamp\":5,\"input_len", ":2:", "JSON");
  refuse(good + "[]\n", ":2:", "object");
  refuse(json("6", "-1", "2"), ":2:", "input_length is -1");
  refuse(json("6", "0", "2"), ":2:", "input_length is 0");
  refuse(json("6", "99999999999999999999", "2"), ":2:", "input_length");
  refuse(json("6", "1.5", "2"), ":2:", "input_length is 1.5");
  refuse(json("6", "1", "-2"), ":2:", "output_length is -2");
  refuse(json("NaN", "1", "2"), ":2:", "JSON");
  refuse(json("-6", "1", "2"), ":2:", "timestamp is -0.006 s");
  refuse(json("\"6\"", "1", "2"), ":2:", "timestamp");
  refuse(json("4", "1", "2"), ":2:", "arrives 0.001 s before");
  refuse(json("6", "600", "2", ",\"hash_ids\":[1]"), ":2:", "1 hash_ids, wanted 2");
  refuse(json("6", "600", "2", ",\"hash_ids\":[1,2,3]"), ":2:", "3 hash_ids, wanted 2");
  refuse(json("6", "600", "2", ",\"hash_ids\":[7,7]"), ":2:", "7 stands twice");
  refuse(json("6", "600", "2", ",\"hash_ids\":[7,-1]"), ":2:", "a hash id is -1");
  refuse(json("6", "600", "2", ",\"hash_ids\":3"), ":2:", "hash_ids is no list");
  refuse("{\"timestamp\":5,\"output_length\":2}\n", ":1:", "has no input_length");
  const auto csv = [](const std::string& line) {
    return "TIMESTAMP,ContextTokens,GeneratedTokens\n" + line + "\n";
  };
  refuse(csv("2024-02-30 00:00:00,1,2"), ":2:", "TIMESTAMP");
  refuse(csv("2024-02-03 24:00:00,1,2"), ":2:", "TIMESTAMP");
  refuse(csv("yesterday,1,2"), ":2:", "TIMESTAMP is 'yesterday'");
  refuse(csv("2024-02-03 00:00:00.x,1,2"), ":2:", "TIMESTAMP");
  refuse(csv("2024-02-03 00:00:00,1"), ":2:", "three values");
  refuse(csv("2024-02-03 00:00:00,1,2,3"), ":2:", "three values");
  refuse(csv("2024-02-03 00:00:00,nan,2"), ":2:", "ContextTokens is 'nan'");
  refuse(csv("2024-02-03 00:00:00,1,-2"), ":2:", "GeneratedTokens is -2");
  refuse(csv("2024-02-03 00:00:01,1,2\n2024-02-03 00:00:00,1,2"), ":3:", "before the line before");
  test::expect_error(ErrorCode::kNotFound, {folder.path("none")},
                     [&] { open_trace(folder.path("none")); });
}

TEST(TraceFile, ScaledInTimeAndLengthAndCut) {
  const test::TempFolder folder;
  const std::string path =
      folder.write("a",
                   "{\"timestamp\":0,\"input_length\":600,\"output_length\":2,\"hash_ids\":[1,2]}\n"
                   "{\"timestamp\":100,\"input_length\":100,\"output_length\":2}\n"
                   "{\"timestamp\":200,\"input_length\":100,\"output_length\":2}\n"
                   "this line is never read\n");
  std::vector<TraceRequest> r = all(scaled(open_trace(path), {.rate = 4, .limit = 3}));
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(r[0].blocks.size(), 2u);
  EXPECT_DOUBLE_EQ(r[2].arrival, 0.05);
  r = all(scaled(open_trace(path), {.lengths = 0.1, .limit = 2}));
  EXPECT_EQ(r[0].input, 60);
  EXPECT_EQ(r[1].output, 1) << "at least a token";
  EXPECT_TRUE(r[0].blocks.empty());
}

// A line at a time: a trace of 10 million lines would be as small in memory.
TEST(TraceFile, ReadsNoFurtherThanAsked) {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    text += "{\"timestamp\":" + std::to_string(i) + ",\"input_length\":9,\"output_length\":9}\n";
  }
  const TraceSource source = open_trace(folder.write("long", text));
  TraceRequest r;
  int64_t n = 0;
  while (source(r)) ++n;
  EXPECT_EQ(n, 200000);
  EXPECT_NEAR(r.arrival, 199.999, 1e-9);
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

TEST(TraceLoads, HaveThePublishedLengthsAndAreTheSameForASeed) {
  struct Wanted {
    const char* name;
    double p50, p99, output;
  };
  for (const Wanted& w :
       {Wanted{"needlebench", 113e3, 995e3, 348}, Wanted{"bookcorpus", 97e3, 406e3, 375},
        Wanted{"conversation", 6909, 85401, 350}}) {
    const TraceLoad load{.mix = w.name, .rate = 2, .requests = 40000, .seed = 5};
    const std::vector<TraceRequest> r = all(generated_trace(load)),
                                    again = all(generated_trace(load));
    ASSERT_EQ(r.size(), 40000u);
    std::vector<double> input, output;
    for (size_t i = 0; i < r.size(); ++i) {
      EXPECT_EQ(r[i].input, again[i].input);
      EXPECT_EQ(r[i].arrival, again[i].arrival);
      EXPECT_TRUE(i == 0 || r[i].arrival >= r[i - 1].arrival);
      input.push_back(static_cast<double>(r[i].input));
      output.push_back(static_cast<double>(r[i].output));
    }
    EXPECT_NEAR(quantile(input, 0.5) / w.p50, 1, 0.03) << w.name;
    EXPECT_NEAR(quantile(input, 0.99) / w.p99, 1, 0.08) << w.name;
    EXPECT_NEAR(quantile(output, 0.5) / w.output, 1, 0.01) << w.name;
    EXPECT_NEAR(r.back().arrival, 40000 / 2.0, 400) << "Poisson at 2 a second";
    EXPECT_LE(quantile(input, 1), 1e6);
  }
  EXPECT_NE(all(generated_trace({.requests = 3, .seed = 1}))[2].input,
            all(generated_trace({.requests = 3, .seed = 2}))[2].input);
}

TEST(TraceLoads, MixesByShares) {
  const TraceSource source = generated_trace(
      {.mix = "conversation=3,needlebench=1", .rate = 1, .requests = 20000, .seed = 3});
  int64_t above = 0;  // conversation has no prompt above 126,195 tokens
  for (const TraceRequest& r : all(source)) above += r.input > 126195 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(above) / 20000, 0.25 * 0.453, 0.01);
  for (const char* wrong : {"", "books", "bookcorpus=0", "bookcorpus=x", "bookcorpus,,"}) {
    test::expect_error(ErrorCode::kInvalidArgument, {"--load"},
                       [&] { generated_trace({.mix = wrong}); });
  }
  test::expect_error(ErrorCode::kInvalidArgument, {"--rate is 0"},
                     [&] { generated_trace({.rate = 0}); });
}

}  // namespace
}  // namespace braid
