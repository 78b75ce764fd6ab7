#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>

#include "braid/base/error.h"

namespace braid {

// The attributes of an op: any plain struct that is comparable (`operator==`) and lists its fields
// for printing through `template <class F> void fields(F&& f) const { f("eps", eps); }`. A cheap
// handle.
class Attrs {
 public:
  Attrs() = default;

  template <class T>
  static Attrs of(T value) {
    Attrs attrs;
    attrs.held_ = std::make_shared<const Held<T>>(std::move(value));
    return attrs;
  }

  template <class T>
  const T& as() const {
    const auto* held = dynamic_cast<const Held<T>*>(held_.get());
    BRAID_CHECK(held != nullptr, "attributes are not a {}", typeid(T).name());
    return held->value;
  }

  bool operator==(const Attrs& other) const {
    if (!held_ || !other.held_) return held_ == other.held_;
    return held_->equals(*other.held_);
  }

  friend std::string to_string(const Attrs& attrs) {
    return attrs.held_ ? attrs.held_->print() : "";
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual bool equals(const Base& other) const = 0;
    virtual std::string print() const = 0;
  };

  template <class T>
  struct Held : Base {
    explicit Held(T v) : value(std::move(v)) {}
    bool equals(const Base& other) const override {
      const auto* same = dynamic_cast<const Held*>(&other);
      return same != nullptr && same->value == value;
    }
    std::string print() const override {
      std::string out;
      value.fields([&](std::string_view name, const auto& field) {
        out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, field);
      });
      return out;
    }
    T value;
  };

  std::shared_ptr<const Base> held_;
};

}  // namespace braid
