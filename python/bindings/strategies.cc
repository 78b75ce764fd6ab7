#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <algorithm>
#include <memory>

#include "bindings/bindings.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/op_scheduler.h"
#include "braid/schedule/strategies/registry.h"

namespace braid::python {
namespace {

// A C++ object that Python may hold on to, but use only during the call that brought it.
template <class T>
struct Handle {
  T* object = nullptr;

  T& get() const {
    if (object != nullptr) return *object;
    fail(ErrorCode::kInvalidArgument,
         "a strategy's context is used after the call that it was made for");
  }
};

// Ends a handle with the call, however that ends.
template <class T>
class Lent {
 public:
  explicit Lent(T& object) : handle_(std::make_shared<Handle<T>>(&object)) {}
  ~Lent() { handle_->object = nullptr; }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  const std::shared_ptr<Handle<T>>& handle() const { return handle_; }

 private:
  const std::shared_ptr<Handle<T>> handle_;
};

using Context = Handle<ScheduleContext>;
using Rules = Handle<PartitionRules>;

// A task of a context.
struct PyTask {
  std::shared_ptr<Context> context;
  Task task;

  const Task& get() const { return context->get(), task; }
};

std::vector<std::pair<int64_t, int64_t>> pairs_of(const Ranges& ranges) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const Range& range : ranges) pairs.emplace_back(range.begin, range.end);
  return pairs;
}

Ranges ranges_of(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  if (pairs.size() > static_cast<size_t>(kMaxMicroBatches)) {
    fail(ErrorCode::kInvalidArgument, "split gives {} micro-batches, allowed are 1 to {}",
         pairs.size(), kMaxMicroBatches);
  }
  Ranges ranges;
  for (const auto& [begin, end] : pairs) ranges.push_back({begin, end});
  return ranges;
}

// A batch as Python sees it: plain data.
struct PyBatch {
  struct Part {
    int64_t tokens, cached, scored;
  };
  std::vector<Part> sequences;
  int64_t tokens = 0;
  int ranks = 1;

  explicit PyBatch(const BatchInfo& info) : tokens(info.tokens), ranks(info.ranks) {
    for (const SequenceInfo& s : info.sequences) {
      sequences.push_back({s.tokens, s.cached, s.scored});
    }
  }
};

// A strategy written in Python: each question goes to the object's method of that name.
class PyScheduler : public OpScheduler {
 public:
  NB_TRAMPOLINE(OpScheduler);

  std::string name() const override { NB_OVERRIDE_PURE(name); }

  void partition(PartitionRules& rules) const override {
    const nb::gil_scoped_acquire lock;
    const Lent<PartitionRules> lent(rules);
    call("partition", nb::cast(lent.handle()));
  }
  Ranges split(const BatchInfo& batch) const override {
    const nb::gil_scoped_acquire lock;
    using Pairs = std::vector<std::pair<int64_t, int64_t>>;
    return ranges_of(
        result<Pairs>("split", nb::cast(PyBatch(batch)), "a list of (begin, end) tokens"));
  }
  LayoutRequest layout(const BatchInfo& batch) const override {
    const nb::gil_scoped_acquire lock;
    return result<LayoutRequest>("layout", nb::cast(PyBatch(batch)), "a LayoutRequest");
  }
  void schedule(ScheduleContext& ctx) const override {
    const nb::gil_scoped_acquire lock;
    const Lent<ScheduleContext> lent(ctx);
    call("schedule", nb::cast(lent.handle()));
  }

  void interrupt() const {
    for (const unsigned long thread : threads_) {
      PyThreadState_SetAsyncExc(thread, PyExc_SystemExit);
    }
  }

 private:
  // The thread is in a call of Python's while this lives; needs the interpreter's lock.
  class InCall {
   public:
    explicit InCall(std::vector<unsigned long>& threads) : threads_(threads) {
      threads_.push_back(PyThread_get_thread_ident());
    }
    ~InCall() { threads_.erase(std::ranges::find(threads_, PyThread_get_thread_ident())); }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;

   private:
    std::vector<unsigned long>& threads_;
  };

  // What Python raises becomes an error with its traceback; an Error stays what it is.
  nb::object call(const char* method, const nb::object& argument) const {
    const InCall in_call(threads_);
    try {
      return nb_trampoline.base().attr(method)(argument);
    } catch (nb::python_error& raised) {
      if (raised.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // for who waits for the plan: raise_signals()
        throw std::runtime_error("KeyboardInterrupt");
      }
      const nb::object type = nb::module_::import_("braid._error").attr("Error");
      if (raised.matches(type)) {
        throw Error(ErrorCode::kInvalidArgument, nb::cast<std::string>(nb::str(raised.value())));
      }
      const nb::object lines =
          nb::module_::import_("traceback").attr("format_exception")(raised.value());
      std::string text = nb::cast<std::string>(nb::str("").attr("join")(lines));
      while (text.ends_with('\n')) text.pop_back();
      throw std::runtime_error(text);
    }
  }

  template <class T>
  T result(const char* method, const nb::object& argument, const char* wanted) const {
    const nb::object made = call(method, argument);
    T value;
    if (nb::try_cast(made, value)) return value;
    fail(ErrorCode::kInvalidArgument, "schedule '{}': {} returned {}, wanted {}", name(), method,
         nb::cast<std::string>(nb::repr(made)), wanted);
  }

  mutable std::vector<unsigned long> threads_;  // in a call; under the interpreter's lock
};

Stream parse_stream(const std::string& name) {
  for (const Stream stream : kStreams) {
    if (to_string(stream) == name) return stream;
  }
  fail(ErrorCode::kInvalidArgument, "stream '{}': there are compute, comm and side", name);
}

}  // namespace

void interrupt(const OpScheduler& strategy) {
  if (const auto* python = dynamic_cast<const PyScheduler*>(&strategy)) python->interrupt();
}

void bind_strategies(nb::module_& m) {
  nb::class_<PyBatch::Part>(m, "SequenceInfo", "One sequence's share of a step.")
      .def_ro("tokens", &PyBatch::Part::tokens, "Tokens that this step computes.")
      .def_ro("cached", &PyBatch::Part::cached, "Tokens whose keys are in the cache before.")
      .def_ro("scored", &PyBatch::Part::scored, "The last ones, whose logits are wanted.");
  nb::class_<PyBatch>(m, "BatchInfo", "A step's batch before it is divided.")
      .def_ro("sequences", &PyBatch::sequences, "The sequences, in token order.")
      .def_ro("tokens", &PyBatch::tokens, "Tokens of all sequences.")
      .def_ro("ranks", &PyBatch::ranks, "Ranks that divide each micro-batch's tokens.");
  nb::class_<LayoutRequest>(m, "LayoutRequest", "What a strategy asks of the lowering.")
      .def(
          "__init__",
          [](LayoutRequest* self, bool sharded) {
            new (self) LayoutRequest{.token_sharded_residual = sharded};
          },
          nb::kw_only(), nb::arg("token_sharded_residual") = false)
      .def_rw("token_sharded_residual", &LayoutRequest::token_sharded_residual,
              "reduce_scatter and all_gather take the place of all_reduce.");
  nb::class_<Rules>(m, "PartitionRules",
                    "How a program is cut into tasks: an op belongs to the first rule that takes "
                    "it.")
      .def(
          "split_module",
          [](const Rules& rules, std::string pattern) {
            rules.get().split_module(std::move(pattern));
          },
          nb::arg("pattern"), "Ops in a scope: 'layers.*.mlp' is one task per layer.")
      .def(
          "split_func",
          [](const Rules& rules, const nb::args& kinds) {
            std::vector<std::string> names;
            for (const nb::handle kind : kinds) names.push_back(nb::cast<std::string>(kind));
            rules.get().split_func(std::move(names));
          },
          nb::sig("def split_func(self, *kinds: str) -> None"),
          "Each run of ops of these kinds, one after the other, is a task.")
      .def(
          "mark", [](const Rules& rules, std::string tag) { rules.get().mark(std::move(tag)); },
          nb::arg("tag"), "Ops that the model, or the lowering, tagged so.");
  nb::class_<PyTask>(m, "Task", "A part of the program, for one micro-batch.")
      .def_prop_ro(
          "rule", [](const PyTask& t) { return std::string(t.get().partition->rule); },
          "The rule that cut the task out; '' for what lies between.")
      .def_prop_ro(
          "scope", [](const PyTask& t) { return std::string(t.get().partition->scope); },
          "The scope of the first op: 'layers.3.attn'.")
      .def_prop_ro(
          "index", [](const PyTask& t) { return t.get().index; },
          "Its place in the program, the same in each micro-batch.")
      .def_prop_ro(
          "micro_batch", [](const PyTask& t) { return t.get().micro_batch; },
          "The micro-batch that it computes, from 0 on.")
      .def_prop_ro(
          "communicates", [](const PyTask& t) { return t.get().communicates(); },
          "Whether every op of the task is communication.");
  nb::class_<Context>(m, "ScheduleContext",
                      "What is ready, and what runs next. Valid during schedule() alone.")
      .def_prop_ro(
          "micro_batches", [](const Context& c) { return c.get().micro_batches(); },
          "How many micro-batches split() made.")
      .def_prop_ro(
          "ranks", [](const Context& c) { return c.get().topology().ranks(); },
          "Ranks of all machines.")
      .def_prop_ro(
          "machines", [](const Context& c) { return c.get().topology().machines; },
          "Machines that the ranks are on.")
      .def(
          "done", [](const Context& c) { return c.get().done(); },
          "Whether every task has been executed.")
      .def(
          "tokens", [](const Context& c, int mb) { return c.get().capacity(mb).token; },
          nb::arg("micro_batch"), "Tokens that the micro-batch can hold.")
      .def(
          "ready",
          [](const std::shared_ptr<Context>& c, int mb) {
            std::vector<PyTask> tasks;
            for (const Task& task : c->get().ready(mb)) tasks.push_back({c, task});
            return tasks;
          },
          nb::arg("micro_batch"), "Tasks whose inputs are made, in program order.")
      .def(
          "twin",
          [](const std::shared_ptr<Context>& c, const PyTask& task, int mb) {
            return PyTask{c, c->get().twin(task.get(), mb)};
          },
          nb::arg("task"), nb::arg("micro_batch"),
          "The same part of the program for another micro-batch, ready or not.")
      .def(
          "execute",
          [](const Context& c, const std::vector<PyTask>& tasks, const std::string& stream,
             const std::string& replace) {
            std::vector<Task> all;
            for (const PyTask& task : tasks) all.push_back(task.get());
            c.get().execute(all, {.stream = parse_stream(stream), .replace = replace});
          },
          nb::arg("tasks"), nb::kw_only(), nb::arg("stream") = "compute", nb::arg("replace") = "",
          "Runs the tasks next on a stream ('compute', 'comm' or 'side'); the same part of "
          "adjacent micro-batches together is one merged launch; `replace` names a fused op that "
          "takes the ops' place.")
      .def(
          "estimate",
          [](const Context& c, const PyTask& task) { return c.get().estimate(task.get()); },
          nb::arg("task"), "Seconds by the cost model; 0 where there is no profile.");
  nb::class_<OpScheduler, PyScheduler>(m, "OpScheduler").def(nb::init<>());
  m.def(
      "split_tokens",
      [](int64_t tokens, int n, int64_t least, int64_t multiple) {
        return pairs_of(split_tokens(tokens, n, least, multiple));
      },
      nb::arg("tokens"), nb::arg("n"), nb::arg("least") = 1, nb::arg("multiple") = 1,
      "`tokens` in n ranges, as even as `multiple` allows; fewer where a range would have less "
      "than `least` tokens.");
  m.def(
      "strategies", [] { return strategy_names(ProgramKind::sequence); },
      "Names of the strategies that come with Braid: for LLM(schedule=) and plan(schedule=).");
  m.attr("RING_TAG") = std::string(kRingTag);
  m.attr("LINK_TAG") = std::string(kLinkTag);
}

}  // namespace braid::python
