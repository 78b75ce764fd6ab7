#include "braid/schedule/fair_share.h"

#include <algorithm>
#include <limits>

#include "braid/base/error.h"

namespace braid {
namespace {

// Sums of shares are not exact.
constexpr double kSlack = 1e-9;

}  // namespace

int FairShare::begin(double seconds, std::span<const Use> uses) {
  BRAID_CHECK(seconds >= 0);
  int handle = static_cast<int>(activities_.size());
  if (unused_.empty()) {
    activities_.emplace_back();
  } else {
    handle = unused_.back();
    unused_.pop_back();
  }
  Activity& activity = activities_[handle];
  activity.left = seconds;
  activity.speed = 1;
  activity.uses.assign(uses.begin(), uses.end());
  active_.insert(std::ranges::lower_bound(active_, handle), handle);
  for (const Use& use : uses) load_[use.resource] += use.share;
  changed_ = changed_ || !uses.empty();
  return handle;
}

double FairShare::advance(std::vector<int>& ended) {
  BRAID_CHECK(!idle());
  if (changed_) share_out();
  unused_.insert(unused_.end(), ended_.begin(), ended_.end());
  ended_.clear();
  double step = std::numeric_limits<double>::infinity();
  for (int handle : active_) {
    const Activity& a = activities_[handle];
    step = std::min(step, a.left / a.speed);
  }
  const double until = step * (1 + kSlack);
  size_t kept = 0;
  for (int handle : active_) {
    Activity& a = activities_[handle];
    if (a.left / a.speed > until) {
      a.left -= step * a.speed;
      active_[kept++] = handle;
      continue;
    }
    for (const Use& use : a.uses) load_[use.resource] -= use.share;
    changed_ = changed_ || !a.uses.empty();
    ended.push_back(handle);
    ended_.push_back(handle);
  }
  active_.resize(kept);
  return step;
}

void FairShare::share_out() {
  changed_ = false;
  const bool crowded = std::ranges::any_of(load_, [](double x) { return x > 1 + kSlack; });
  if (!crowded && !shared_) return;
  shared_ = crowded;
  for (int handle : active_) {
    activities_[handle].speed = 1;
    activities_[handle].frozen = !crowded;
  }
  free_.assign(load_.size(), 1);
  wanted_ = load_;
  while (crowded) {
    // The level at which the first resource is used up.
    double level = 1;
    for (size_t r = 0; r < wanted_.size(); ++r) {
      if (wanted_[r] > kSlack && wanted_[r] * level > free_[r] * (1 + kSlack))
        level = std::max(free_[r], 0.0) / wanted_[r];
    }
    if (level == 1) return;
    bool any = false;
    for (int handle : active_) {
      Activity& a = activities_[handle];
      const auto full = [&](const Use& use) {
        const size_t r = use.resource;
        return use.share > 0 && wanted_[r] * level >= free_[r] * (1 - kSlack);
      };
      if (!a.frozen && std::ranges::any_of(a.uses, full)) {
        a.speed = std::max(level, kSlack);
        any = true;
      }
    }
    BRAID_CHECK(any, "no activity uses the resource that is used up");
    // In a loop apart: all activities with the same limit get the same share.
    for (int handle : active_) {
      Activity& a = activities_[handle];
      if (a.frozen || a.speed == 1) continue;
      a.frozen = true;
      for (const Use& use : a.uses) {
        const size_t r = use.resource;
        wanted_[r] -= use.share;
        free_[r] -= use.share * a.speed;
        if (wanted_[r] < kSlack) wanted_[r] = 0;
      }
    }
  }
}

}  // namespace braid
