#pragma once

#include <span>
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

// A group of ranks that meet on an axis.
struct MeshGroup {
  std::string axis;  // "world": all ranks
  std::vector<int> ranks;
  std::string name;  // differs from the names of the rank's other groups
};
// The groups that a rank has in meshes over the same ranks, the world first. Each rank has as many,
// in the same order. Two ranks that share a group find the same one first by axis and ranks.
std::vector<MeshGroup> groups_of(int rank, std::span<const Mesh> meshes);

}  // namespace braid
