#pragma once

#include <span>
#include <vector>

namespace braid {

// Activities that run beside each other and share resources fairly: all go at the same share of
// their own full speed, except that what a resource cannot give is taken from those that use it
// (progressive filling, as max-min fairness does). A resource gives 1 in all.
class FairShare {
 public:
  struct Use {
    int resource = 0;
    double share = 0;  // of the resource, at full speed; 0 to 1
  };

  explicit FairShare(int resources) : load_(static_cast<size_t>(resources)) {}

  // An activity that alone takes `seconds` (>= 0); returns its handle, which another may get
  // after the advance() that follows its end.
  int begin(double seconds, std::span<const Use> uses);
  bool idle() const { return active_.empty(); }
  // Goes on until the next activity ends. Appends all that end then to `ended`, in the order of
  // their handles, and returns how long it took.
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
