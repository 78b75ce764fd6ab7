#include "bindings/stream.h"

#include <nanobind/stl/string.h>

namespace braid::python {
namespace {

constexpr double kSlice = 0.05;  // seconds between two looks at Ctrl-C

nb::dict dict_of(const SampledToken& token) {
  nb::dict entry;
  entry["id"] = token.id;
  entry["logprob"] = token.logprob;
  nb::list top;
  for (const TokenLogprob& t : token.top) top.append(nb::make_tuple(t.id, t.logprob));
  entry["top"] = top;
  return entry;
}

nb::list list_of(std::span<const SampledToken> tokens) {
  nb::list list;
  for (const SampledToken& token : tokens) list.append(dict_of(token));
  return list;
}

nb::dict dict_of(const AnswerEnd& end) {
  nb::dict entry;
  entry["finish_reason"] = std::string(to_string(end.reason));
  entry["stop"] = end.stop.empty() ? nb::none() : nb::object(nb::str(end.stop.c_str()));
  entry["prompt_tokens"] = end.prompt_tokens;
  entry["cached_tokens"] = end.cached_tokens;
  entry["completion_tokens"] = end.answer_tokens;
  if (end.approximate) {
    nb::dict made;
    made["pairs"] = end.approximate->shares.pair_share();
    made["far_keys"] = end.approximate->shares.key_share();
    entry["approximate"] = made;
  }
  entry["seconds"] = end.times.end - end.times.arrival;
  entry["ttft"] = end.times.first_token > 0 ? end.times.first_token - end.times.arrival : 0.0;
  return entry;
}

}  // namespace

PyStream::PyStream(const std::shared_ptr<Engine>& engine, AnswerRequest request,
                   std::function<void()> ready)
    : engine_(engine),
      stream_(std::in_place, engine->requests(), std::move(request), std::move(ready)) {}

PyStream::~PyStream() {
  with_engine([&] { stream_.reset(); });
}

nb::object PyStream::next() {
  while (!unlocked([&] { return stream_->wait(kSlice); })) raise_signals();
  return take();
}

void PyStream::cancel() {
  with_engine([&] { stream_->cancel(); });
}

nb::dict PyStream::end() const {
  return dict_of(stream_->end());
}

nb::tuple PyStream::rest() {
  while (!unlocked([&] { return stream_->wait_for_end(kSlice); })) raise_signals();
  const Answer answer = stream_->rest();
  return nb::make_tuple(answer.text, list_of(answer.tokens), list_of(answer.prompt),
                        dict_of(answer.end));
}

nb::object PyStream::take() {
  const std::optional<AnswerText> piece = stream_->next();
  if (!piece) return nb::none();
  return nb::make_tuple(piece->text, list_of(piece->tokens));
}

void bind_stream(nb::module_& m) {
  nb::class_<PyStream>(m, "Stream", "One request's answer; use braid.LLM.stream().")
      .def("next", &PyStream::next,
           nb::sig("def next(self) -> tuple[str, list[dict[str, typing.Any]]] | None"))
      .def("ready", &PyStream::ready)
      .def("cancel", &PyStream::cancel)
      .def("end", &PyStream::end, nb::sig("def end(self) -> dict[str, typing.Any]"))
      .def("rest", &PyStream::rest,
           nb::sig("def rest(self) -> tuple[str, list[dict[str, typing.Any]], "
                   "list[dict[str, typing.Any]], dict[str, typing.Any]]"));
}

}  // namespace braid::python
