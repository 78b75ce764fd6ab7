#pragma once

// Everything that a program needs to run models with Braid; link braid::engine.
//
//   auto engine = braid::Engine::open({.model = "model.gguf"});
//   engine->generate({.prompt = engine->tokenizer().encode("Once upon a time"), .max_tokens = 64},
//                    [](std::string_view text) { std::cout << text; return true; });
//
// Engine         opens a model on its devices and answers many requests at once: generate() with
//                text as it is made, submit() with a sink, score() and logits() of given tokens
// AnswerStream   one request's answer, piece by piece, at the caller's pace
// ChatPrompt     turns messages into a prompt (Engine::chat)
// Generator      one request at a time: ranks that divide a prompt, a conversation whose keys stay
// StepPlans      a step planned and simulated for devices that need not be there
// StepTrace, timeline_svg   launches by time, real or simulated: for Perfetto, and as a picture
//
// What a user can mend is thrown as braid::Error: a code, and one line that names the thing, the
// value and the limit.
#include "braid/base/error.h"
#include "braid/engine/engine.h"
#include "braid/engine/generate.h"
#include "braid/engine/profile_choice.h"
#include "braid/engine/step_plans.h"
#include "braid/engine/step_trace.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/timeline_svg.h"
