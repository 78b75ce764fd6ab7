#include "braid/grammar/grammar_store.h"

#include <chrono>
#include <semaphore>
#include <utility>

#include "braid/base/clock.h"

namespace braid {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // between two looks whether a caller still waits
constexpr int64_t kOverhead = 4096;             // bytes per entry without a grammar

}  // namespace

GrammarTokens grammar_tokens(const Tokenizer& tokenizer, int64_t vocabulary) {
  GrammarTokens tokens{.vocabulary = vocabulary};
  for (int32_t id = 0; id < tokenizer.vocab_size() && id < vocabulary; ++id) {
    tokens.texts.push_back(tokenizer.is_special(id) ? "" : tokenizer.bytes(id));
    if (!tokenizer.is_end_of_generation(id)) continue;
    tokens.texts.back().clear();
    tokens.ends.push_back(id);
  }
  return tokens;
}

GrammarStore::GrammarStore(const Tokenizer& tokenizer, int64_t vocabulary, GrammarConfig config)
    : config_(std::move(config)),
      tokens_(grammar_tokens(tokenizer, vocabulary)),
      spelling_(grammar_spelling(tokenizer, tokens_)),
      library_(tokens_) {
  for (int i = 0; i < config_.compilers; ++i) threads_.emplace_back([this] { work(); });
}

GrammarStore::~GrammarStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<const CompiledGrammar> GrammarStore::Pending::get() const {
  const std::lock_guard lock(mutex_);
  if (error_) throw Error(*error_);
  return grammar_;
}

std::shared_ptr<const GrammarStore::Pending> GrammarStore::compile(const std::string& tag,
                                                                   std::function<void()> wake) {
  std::shared_ptr<Pending> pending;
  {
    const std::lock_guard lock(mutex_);
    auto it = entries_.find(tag);
    if (it == entries_.end()) {
      if (std::ssize(queue_) >= config_.most_waiting) {
        fail(ErrorCode::kResource, "{} grammars wait to be compiled already, at most {} may",
             queue_.size(), config_.most_waiting);
      }
      ages_.push_front(tag);
      it = entries_.emplace(tag, Entry{std::make_shared<Pending>(), 0, ages_.begin()}).first;
      queue_.push_back(tag);
      wake_.notify_one();
    }
    ages_.splice(ages_.begin(), ages_, it->second.age);
    pending = it->second.pending;
  }
  {
    const std::lock_guard lock(pending->mutex_);
    if (pending->grammar_ == nullptr && !pending->error_) {
      pending->wake_.push_back(std::move(wake));
      return pending;
    }
  }
  wake();
  return pending;
}

std::shared_ptr<const CompiledGrammar> GrammarStore::compile_now(
    const std::string& tag, const std::function<bool()>& keep_waiting) {
  const auto turns = static_cast<double>(config_.most_waiting / config_.compilers + 2);
  const double limit = turns * (config_.limits.seconds + 1);
  const double begin = steady_seconds();
  const auto woken = std::make_shared<std::binary_semaphore>(0);
  const auto pending = compile(tag, [woken] { woken->release(); });
  while (!woken->try_acquire_for(kLook)) {
    if (keep_waiting && !keep_waiting()) fail(ErrorCode::kAborted, "a grammar is wanted no more");
    if (steady_seconds() - begin > limit)
      fail(ErrorCode::kDeadline, "a grammar was not compiled within {:.0f} s", limit);
  }
  return pending->get();
}

void GrammarStore::work() {
  while (true) {
    std::string tag;
    std::shared_ptr<Pending> pending;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      tag = std::move(queue_.front());
      queue_.pop_front();
      pending = entries_.at(tag).pending;
    }
    try {
      const std::string text =
          compile_apart(config_.program, helper_input(tokens_, tag), config_.limits, stop_);
      finish(tag, *pending, library_.load(text), {});
    } catch (const Error& error) {
      finish(tag, *pending, nullptr, error);
    } catch (const std::exception& error) {
      finish(tag, *pending, nullptr, Error(ErrorCode::kAborted, error.what()));
    }
  }
}

void GrammarStore::finish(const std::string& tag, Pending& pending,
                          std::shared_ptr<const CompiledGrammar> grammar,
                          std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(tag);
    // A failure for another reason than the tag is tried again.
    const bool keep = !error || error->code() == ErrorCode::kInvalidArgument;
    entry.bytes = kOverhead + std::ssize(tag) + (grammar ? grammar->bytes() : 0);
    bytes_ += entry.bytes;
    const auto forget = [&](const std::string& name) {
      const auto it = entries_.find(name);
      bytes_ -= it->second.bytes;
      ages_.erase(it->second.age);
      entries_.erase(it);
    };
    if (!keep) forget(tag);
    while (bytes_ > config_.cache) {
      auto oldest = ages_.rbegin();
      while (oldest != ages_.rend() && entries_.at(*oldest).bytes == 0) ++oldest;  // compiles still
      if (oldest == ages_.rend()) break;
      forget(std::string(*oldest));
    }
  }
  std::vector<std::function<void()>> wake;
  {
    const std::lock_guard lock(pending.mutex_);
    pending.grammar_ = std::move(grammar);
    pending.error_ = std::move(error);
    wake.swap(pending.wake_);
  }
  for (const auto& call : wake) call();
}

}  // namespace braid
