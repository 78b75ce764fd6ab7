#include "braid/parallel/mesh.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "braid/base/error.h"

namespace braid {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  for (const Axis& axis : axes_) {
    if (axis.size < 1) {
      fail(ErrorCode::kInvalidArgument, "mesh axis {} has size {}, wanted at least 1", axis.name,
           axis.size);
    }
    if (!names.insert(axis.name).second) {
      fail(ErrorCode::kInvalidArgument, "mesh axis {} appears twice", axis.name);
    }
  }
}

int Mesh::size() const {
  int n = 1;
  for (const Axis& axis : axes_) n *= axis.size;
  return n;
}

int Mesh::size(const std::string& name) const {
  for (const Axis& axis : axes_) {
    if (axis.name == name) return axis.size;
  }
  return 1;
}

int Mesh::stride(size_t index) const {
  int stride = 1;
  for (size_t i = index + 1; i < axes_.size(); ++i) stride *= axes_[i].size;
  return stride;
}

int Mesh::coordinate(int rank, const std::string& name) const {
  BRAID_CHECK(0 <= rank && rank < size(), "rank {} of {}", rank, size());
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return rank / stride(i) % axes_[i].size;
  }
  return 0;
}

std::vector<int> Mesh::group(int rank, const std::string& name) const {
  BRAID_CHECK(0 <= rank && rank < size(), "rank {} of {}", rank, size());
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name != name) continue;
    std::vector<int> ranks;
    const int first = rank - coordinate(rank, name) * stride(i);
    for (int c = 0; c < axes_[i].size; ++c) ranks.push_back(first + c * stride(i));
    return ranks;
  }
  return {rank};
}

namespace {

bool has_axis(const Mesh& mesh, const std::string& name) {
  return std::ranges::any_of(mesh.axes(),
                             [&](const Mesh::Axis& axis) { return axis.name == name; });
}

// Those of the first `ranks` ranks.
std::vector<int> first_of(std::vector<int> group, int ranks) {
  std::erase_if(group, [&](int rank) { return rank >= ranks; });
  return group;
}

// Whether the axis has the same groups in both meshes: the later mesh then uses the earlier's.
bool same_groups(const Mesh& a, const Mesh& b, const std::string& axis, int ranks) {
  if (!has_axis(a, axis) || !has_axis(b, axis)) return false;
  for (int rank = 0; rank < ranks; ++rank) {
    if (first_of(a.group(rank, axis), ranks) != first_of(b.group(rank, axis), ranks)) return false;
  }
  return true;
}

}  // namespace

std::vector<MeshGroup> groups_of(int rank, std::span<const Mesh> meshes) {
  std::vector<MeshGroup> groups;
  const int ranks = std::ranges::min(meshes, {}, [](const Mesh& m) { return m.size(); }).size();
  std::vector<int> world(ranks);
  std::iota(world.begin(), world.end(), 0);
  groups.push_back({"world", std::move(world), "world"});
  for (size_t m = 0; m < meshes.size(); ++m) {
    for (const Mesh::Axis& axis : meshes[m].axes()) {
      const bool known = std::ranges::any_of(meshes.first(m), [&](const Mesh& earlier) {
        return same_groups(earlier, meshes[m], axis.name, ranks);
      });
      if (axis.size == 1 || known) continue;
      groups.push_back({axis.name, first_of(meshes[m].group(rank, axis.name), ranks),
                        fmt::format("{}{}", axis.name, m)});
    }
  }
  return groups;
}

}  // namespace braid
