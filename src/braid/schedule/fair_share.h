#pragma once

#include <span>
#include <vector>

namespace braid {

// Activities that run beside each other and share resources fairly: all go at an equal share of
// their full speed, except that a short resource slows only its users (progressive filling, max-min
// fairness). A resource gives 1 in all.
class FairShare {
 public:
  struct Use {
    int resource = 0;
    double share = 0;  // of the resource, at full speed; 0 to 1
  };

  explicit FairShare(int resources) : load_(resources) {}

  // Begins an activity that alone takes `seconds` (>= 0); returns its handle. The advance() behind
  // the activity's end frees the handle for reuse.
  int begin(double seconds, std::span<const Use> uses);
  bool idle() const { return active_.empty(); }
  // Goes on until the next activity ends. Appends all activities that end then to `ended`, by
  // handle, and returns the elapsed time.
  double advance(std::vector<int>& ended);

 private:
  struct Activity {
    double left = 0;  // seconds at full speed
    double speed = 1;
    bool frozen = false;
    std::vector<Use> uses;
  };
  void share_out();

  std::vector<double> load_;  // [resources] of all active at full speed
  std::vector<double> free_;  // scratch of share_out
  std::vector<double> wanted_;
  std::vector<Activity> activities_;
  std::vector<int> active_;  // handles, ascending
  std::vector<int> ended_;   // handles of the last advance()
  std::vector<int> unused_;
  bool changed_ = false;
  bool shared_ = false;  // some activity is slower than alone
};

}  // namespace braid
