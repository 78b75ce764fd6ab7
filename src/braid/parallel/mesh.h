#pragma once

#include <string>
#include <vector>

namespace braid {

// Named axes over ranks, outermost first: rank = row-major index of the coordinates.
class Mesh {
 public:
  struct Axis {
    std::string name;  // "tp", "torus", "ulysses", "ring", "ep", "dp", "cfg"
    int size = 1;
  };

  // Fails with kInvalidArgument on a size below 1 or a name that appears twice.
  explicit Mesh(std::vector<Axis> axes);

  int size() const;
  int size(const std::string& axis) const;  // 1 for an axis that the mesh does not have
  int coordinate(int rank, const std::string& axis) const;

  // Ranks that differ from `rank` in this axis alone, by coordinate.
  std::vector<int> group(int rank, const std::string& axis) const;

  const std::vector<Axis>& axes() const { return axes_; }

 private:
  int stride(size_t axis) const;
  std::vector<Axis> axes_;
};

}  // namespace braid
