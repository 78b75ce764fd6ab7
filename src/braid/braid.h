#pragma once

// All headers for programs that run models with Braid; link braid::engine.
//
//   auto engine = braid::Engine::open({.model = "model.gguf"});
//   engine->generate({.prompt = engine->tokenizer().encode("Once upon a time"), .max_tokens = 64},
//                    [](std::string_view text) { std::cout << text; return true; });
//
// Engine         opens a model on its devices and answers many requests at once: generate() with
//                streamed text, submit() with a sink, score() and logits() for given tokens
// AnswerStream   a request's answer, piece by piece, at the caller's pace
// ChatPrompt     turns messages into a prompt (Engine::chat)
// Generator      requests one by one: ranks that divide a prompt, conversations with kept keys
// StepPlans      a step planned and simulated for devices that may be absent
// StepTrace, timeline_svg   launches by time, real or simulated: for Perfetto, and as a picture
//
// Mistakes that a user can mend throw braid::Error: a code, and a line with the thing, the value
// and the limit.
#include "braid/base/error.h"
#include "braid/engine/engine.h"
#include "braid/engine/generate.h"
#include "braid/engine/profile_choice.h"
#include "braid/engine/step_plans.h"
#include "braid/engine/step_trace.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/timeline_svg.h"
