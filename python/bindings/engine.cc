#include "braid/engine/engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <future>
#include <mutex>
#include <random>

#include "bindings/bindings.h"
#include "bindings/grammars.h"
#include "bindings/stream.h"
#include "braid/engine/requests/kv_room.h"

namespace braid::python {
namespace {

using Ids = std::vector<int32_t>;

// An engine that Python may close while others still use it: each call holds it until it ends.
class PyEngine {
 public:
  PyEngine(std::unique_ptr<Engine> engine, std::shared_ptr<const OpScheduler> own,
           const std::string& grammar_helper)
      : engine_(std::move(engine)), own_(std::move(own)), grammars_(grammar_helper) {}
  ~PyEngine() { close(); }

  std::shared_ptr<Engine> get() const {
    const std::lock_guard lock(mutex_);
    if (engine_) return engine_;
    fail(ErrorCode::kAborted, "the LLM is closed");
  }
  // Ends all requests. The engine's threads may want the interpreter's lock meanwhile.
  void close() {
    nb::gil_scoped_release release;
    std::shared_ptr<Engine> engine;
    {
      const std::lock_guard lock(mutex_);
      engine.swap(engine_);
    }
    if (!own_) return;
    const auto end = std::async(std::launch::async, [&] { engine.reset(); });
    while (end.wait_for(std::chrono::seconds(1)) != std::future_status::ready) {
      const nb::gil_scoped_acquire lock;
      interrupt(*own_);
    }
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return engine_ == nullptr;
  }

  // Calls `call(engine)` without the interpreter's lock; the engine, too, is let go without it.
  template <class F>
  auto with(F&& call) const {
    nb::gil_scoped_release release;
    const std::shared_ptr<Engine> engine = get();
    return call(*engine);
  }
  // The same for a call that Ctrl-C ends: `call(engine, keep_waiting)`.
  template <class F>
  auto with_signals(F&& call) const {
    bool interrupted = false;
    const Engine::KeepWaiting keep_waiting = [&] {
      const nb::gil_scoped_acquire lock;
      return !(interrupted = PyErr_CheckSignals() != 0);
    };
    try {
      return with([&](Engine& engine) { return call(engine, keep_waiting); });
    } catch (const Error&) {
      if (interrupted) throw nb::python_error();
      throw;
    }
  }
  // Masks for an answer of a format, once it is compiled; Ctrl-C ends the wait.
  TokenMask mask(const AnswerFormat& format, const Ids& prompt, bool chat) {
    return with_signals([&](Engine& engine, const Engine::KeepWaiting& wait) {
      return grammars_.mask(engine, format, prompt, chat, wait);
    });
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const OpScheduler> own_;  // of Python; may be null
  Grammars grammars_;
};

// Python's callable, let go with the interpreter's lock from whichever thread lets go last.
std::function<void()> callback_of(const nb::object& ready) {
  if (ready.is_none()) return {};
  const std::shared_ptr<nb::object> held(new nb::object(ready), [](nb::object* object) {
    const nb::gil_scoped_acquire lock;
    delete object;
  });
  return [held] {
    const nb::gil_scoped_acquire lock;
    try {
      (*held)();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("braid: a callback of a stream");
    }
  };
}

std::unique_ptr<PyEngine> open(const std::string& model, const std::string& device, int tp,
                               const std::string& sp, std::optional<int> ranks,
                               const std::string& machines, int threads,
                               const std::optional<std::string>& schedule,
                               std::shared_ptr<OpScheduler> own, const std::string& kv_dtype,
                               int64_t max_context, int64_t max_running, int64_t max_step_tokens,
                               int64_t max_waiting, bool prefix_cache, const std::string& kv_memory,
                               std::vector<double> keep, std::vector<int> levels,
                               const std::string& importance, const std::string& grammar_helper) {
  EngineOptions options{.model = model};
  options.parallel = {.device = device, .kv_dtype = kv_dtype};
  EngineConfig& config = options.parallel.engine;
  config.tp = tp;
  config.threads = threads;
  config.schedule = schedule.value_or(config.schedule);
  config.strategy = own;
  config.max_context = max_context;
  options.parallel.sequence = {.mode = sp,
                               .ranks = ranks,
                               .machines = machines,
                               .thinning = {.keep = std::move(keep),
                                            .groups = std::move(levels),
                                            .importance = parse_importance(importance)},
                               .tp_named = tp != 1,
                               .schedule_named = own || schedule};
  SchedulerConfig& scheduler = options.limits.scheduler;
  scheduler.max_running = max_running;
  scheduler.max_step_tokens = max_step_tokens;
  scheduler.max_waiting = max_waiting;
  scheduler.prefix_cache = prefix_cache;
  const std::optional<int64_t> bytes = parse_size(kv_memory);
  if (!bytes) {
    fail(ErrorCode::kInvalidArgument,
         "--kv-memory is '{}', wanted auto or a size such as 512M or 8G", kv_memory);
  }
  options.limits.kv_bytes = *bytes;
  return unlocked(
      [&] { return std::make_unique<PyEngine>(Engine::open(options), own, grammar_helper); });
}

AnswerRequest request_of(const Engine& engine, Ids prompt, bool chat,
                         std::optional<int64_t> max_tokens, int64_t min_tokens,
                         std::optional<float> temperature, std::optional<int32_t> top_k,
                         std::optional<float> top_p, std::optional<float> min_p,
                         std::optional<float> repetition_penalty, float frequency_penalty,
                         float presence_penalty, std::optional<uint64_t> seed,
                         std::vector<std::pair<int32_t, float>> logit_bias,
                         std::vector<std::string> stop, Ids stop_ids, bool include_stop,
                         bool ignore_eos, bool skip_special, bool exact, int logprobs,
                         int prompt_logprobs) {
  AnswerRequest r{.prompt = std::move(prompt),
                  .max_tokens = max_tokens.value_or(0),
                  .min_tokens = min_tokens,
                  .sampling = engine.default_sampling(chat),
                  .stop = std::move(stop),
                  .stop_ids = std::move(stop_ids),
                  .include_stop = include_stop,
                  .continuation = !chat,
                  .ignore_eos = ignore_eos,
                  .skip_special = skip_special,
                  .prompt_logprobs = prompt_logprobs,
                  .list_tokens = true,
                  .exact = exact};
  SamplingParams& s = r.sampling;
  s.temperature = temperature.value_or(s.temperature);
  s.top_k = top_k.value_or(s.top_k);
  s.top_p = top_p.value_or(s.top_p);
  s.min_p = min_p.value_or(s.min_p);
  s.repetition_penalty = repetition_penalty.value_or(s.repetition_penalty);
  s.frequency_penalty = frequency_penalty;
  s.presence_penalty = presence_penalty;
  s.seed = seed ? *seed : std::random_device()();
  s.logprobs = logprobs;
  s.logit_bias = std::move(logit_bias);
  if (max_tokens && *max_tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "max_tokens is {}, wanted at least 1, or None", *max_tokens);
  }
  return r;
}

nb::dict stats_of(const PyEngine& engine) {
  const RequestStats stats = engine.with([](Engine& e) { return e.stats(); });
  nb::dict d;
  d["running"] = stats.scheduler.running;
  d["waiting"] = stats.scheduler.waiting;
  d["steps"] = stats.steps;
  d["prompt_tokens"] = stats.prompt_tokens;
  d["answer_tokens"] = stats.answer_tokens;
  d["step_seconds"] = stats.step_seconds;
  d["sample_seconds"] = stats.sample_seconds;
  d["host_seconds"] = stats.host_seconds;
  return d;
}

// f32 [ids, V] in NumPy's memory or, for DLPack, on the device; Python owns both.
nb::object logits_of(const PyEngine& engine, const Ids& ids) {
  auto* rows = new std::vector<float>(engine.with_signals(
      [&](Engine& e, const Engine::KeepWaiting& wait) { return e.logits(ids, wait); }));
  const nb::capsule owner(rows,
                          [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  const size_t shape[2] = {ids.size(), rows->size() / ids.size()};
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(rows->data(), 2, shape, owner));
}

nb::object device_logits_of(const PyEngine& engine, const Ids& ids) {
  auto* made = new DeviceLogits(engine.with_signals(
      [&](Engine& e, const Engine::KeepWaiting& wait) { return e.device_logits(ids, wait); }));
  const nb::capsule owner(made, [](void* p) noexcept { delete static_cast<DeviceLogits*>(p); });
  const size_t shape[2] = {static_cast<size_t>(made->tokens),
                           static_cast<size_t>(made->vocabulary)};
  return nb::cast(nb::ndarray<nb::array_api, float, nb::ndim<2>>(
      made->memory->data(), 2, shape, owner, nullptr, nb::dtype<float>(),
      made->cuda ? nb::device::cuda::value : nb::device::cpu::value, made->gpu));
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_stream(m);
  nb::class_<PyEngine>(m, "Engine", "A model on its devices; use braid.LLM.")
      .def_static("open", &open, nb::kw_only(), nb::arg("model"), nb::arg("device"), nb::arg("tp"),
                  nb::arg("sp"), nb::arg("ranks").none(), nb::arg("machines"), nb::arg("threads"),
                  nb::arg("schedule").none(), nb::arg("own").none(), nb::arg("kv_dtype"),
                  nb::arg("max_context"), nb::arg("max_running"), nb::arg("max_step_tokens"),
                  nb::arg("max_waiting"), nb::arg("prefix_cache"), nb::arg("kv_memory"),
                  nb::arg("keep"), nb::arg("levels"), nb::arg("importance"),
                  nb::arg("grammar_helper"))
      .def("close", &PyEngine::close)
      .def_prop_ro("closed", &PyEngine::closed)
      .def(
          "submit",
          [](PyEngine& engine, Ids prompt, bool chat, std::optional<int64_t> max_tokens,
             int64_t min_tokens, std::optional<float> temperature, std::optional<int32_t> top_k,
             std::optional<float> top_p, std::optional<float> min_p,
             std::optional<float> repetition_penalty, float frequency_penalty,
             float presence_penalty, std::optional<uint64_t> seed,
             std::vector<std::pair<int32_t, float>> logit_bias, std::vector<std::string> stop,
             Ids stop_ids, bool include_stop, bool ignore_eos, bool skip_special, bool exact,
             int logprobs, int prompt_logprobs, const std::optional<AnswerFormat>& format,
             const nb::object& ready) {
            std::function<void()> callback = callback_of(ready);
            TokenMask mask = format ? engine.mask(*format, prompt, chat) : TokenMask();
            nb::gil_scoped_release release;
            const std::shared_ptr<Engine> e = engine.get();
            AnswerRequest request = request_of(
                *e, std::move(prompt), chat, max_tokens, min_tokens, temperature, top_k, top_p,
                min_p, repetition_penalty, frequency_penalty, presence_penalty, seed,
                std::move(logit_bias), std::move(stop), std::move(stop_ids), include_stop,
                ignore_eos, skip_special, exact, logprobs, prompt_logprobs);
            request.mask = std::move(mask);
            return std::make_unique<PyStream>(e, std::move(request), std::move(callback));
          },
          nb::kw_only(), nb::arg("prompt"), nb::arg("chat"), nb::arg("max_tokens").none(),
          nb::arg("min_tokens"), nb::arg("temperature").none(), nb::arg("top_k").none(),
          nb::arg("top_p").none(), nb::arg("min_p").none(), nb::arg("repetition_penalty").none(),
          nb::arg("frequency_penalty"), nb::arg("presence_penalty"), nb::arg("seed").none(),
          nb::arg("logit_bias"), nb::arg("stop"), nb::arg("stop_ids"), nb::arg("include_stop"),
          nb::arg("ignore_eos"), nb::arg("skip_special"), nb::arg("exact"), nb::arg("logprobs"),
          nb::arg("prompt_logprobs"), nb::arg("format").none(), nb::arg("ready").none())
      .def(
          "chat_ids",
          [](const PyEngine& engine,
             const std::vector<std::pair<std::string, std::string>>& messages) {
            return engine.with([&](Engine& e) {
              if (e.chat() == nullptr) {
                fail(ErrorCode::kUnsupported, "the model has no chat template");
              }
              std::vector<ChatMessage> all;
              for (const auto& [role, content] : messages) {
                ChatMessage& message = all.emplace_back();
                message.role = role;
                message.content = content;
              }
              return e.chat()->encode(all);
            });
          },
          nb::arg("messages"))
      .def(
          "encode",
          [](const PyEngine& engine, const std::string& text, bool add_special,
             bool parse_special) {
            return engine.with([&](Engine& e) {
              return e.tokenizer().encode(
                  text, {.add_special = add_special, .parse_special = parse_special});
            });
          },
          nb::arg("text"), nb::arg("add_special"), nb::arg("parse_special"))
      .def(
          "decode",
          [](const PyEngine& engine, const Ids& ids, bool skip_special) {
            return engine.with([&](Engine& e) {
              return e.tokenizer().decode(ids, {.skip_special = skip_special});
            });
          },
          nb::arg("ids"), nb::arg("skip_special"))
      .def(
          "piece",
          [](const PyEngine& engine, int32_t id) {
            return engine.with([&](Engine& e) { return std::string(e.tokenizer().piece(id)); });
          },
          nb::arg("id"))
      .def("vocab_size",
           [](const PyEngine& engine) {
             return engine.with([](Engine& e) { return e.tokenizer().vocab_size(); });
           })
      .def("max_context",
           [](const PyEngine& engine) {
             return engine.with([](Engine& e) { return e.max_context(); });
           })
      .def(
          "score",
          [](const PyEngine& engine, const Ids& ids) {
            return engine.with_signals(
                [&](Engine& e, const Engine::KeepWaiting& wait) { return e.score(ids, wait); });
          },
          nb::arg("ids"))
      .def("logits", logits_of, nb::arg("ids"),
           nb::sig("def logits(self, ids: collections.abc.Sequence[int]) -> "
                   "numpy.typing.NDArray[numpy.float32]"))
      .def("device_logits", device_logits_of, nb::arg("ids"),
           nb::sig("def device_logits(self, ids: collections.abc.Sequence[int]) -> typing.Any"))
      .def("stats", stats_of, nb::sig("def stats(self) -> dict[str, typing.Any]"));
}

}  // namespace braid::python
