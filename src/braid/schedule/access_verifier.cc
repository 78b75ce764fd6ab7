#include "braid/schedule/access_verifier.h"

#include <algorithm>

#include "braid/schedule/dependencies.h"
#include "braid/schedule/launch_waits.h"

namespace braid {
namespace {

// An op's access of a value.
struct Access {
  int op = -1;
  bool writes = false;
  int phase = 0;  // the launch's phase in which the access begins
};

class AccessCheck {
 public:
  explicit AccessCheck(const RankView& rank)
      : rank_(rank), program_(rank.program()), order_(rank.order()) {}

  void run() {
    check_inputs_are_made();
    check_mutable_values();
    for (const BatchAxis axis : kBatchAxes) check_extents(axis);
  }

 private:
  void check_inputs_are_made() const {
    const size_t M = rank_.micro_batches();
    std::vector<int> maker(program_.values.size() * M, -1);
    const auto made_by = [&](ValueId id, int mb) -> int& {
      return maker[static_cast<size_t>(id) * M + static_cast<size_t>(mb)];
    };
    for (int i = 0; i < rank_.launches(); ++i) {
      rank_.for_each_call(i, [&](const Op& op, int, int mb) {
        for (ValueId id : op.outputs) {
          int& made = made_by(id, mb);
          if (made >= 0) {
            rank_.refuse(op, mb,
                         fmt::format("every op once: launches {} and {} make %{}", made, i, id));
          }
          made = i;
        }
      });
    }
    for (int i = 0; i < rank_.launches(); ++i) {
      const bool alone = rank_.launch(i).joined.empty();
      rank_.for_each_call(i, [&](const Op& op, int, int mb) {
        for (ValueId id : op.inputs) {
          if (id == kNoValue || program_.value(id).kind != ValueKind::computed) continue;
          const int made = made_by(id, mb);
          if (made < 0) {
            rank_.refuse(op, mb,
                         fmt::format("inputs are made: %{}, which it reads, is made nowhere", id));
          }
          if ((made == i && alone) || order_.before_access(made, i)) continue;
          rank_.refuse(op, mb,
                       fmt::format("inputs are made (RAW): launch {} reads %{}, and {}, which "
                                   "makes %{}, need not have ended",
                                   i, id, rank_.name(made), id));
        }
      });
    }
    for (ValueId id : program_.outputs) {
      for (int mb = 0; mb < rank_.micro_batches(); ++mb) {
        if (program_.value(id).kind == ValueKind::computed && made_by(id, mb) < 0) {
          rank_.refuse(program_.ops.back(), mb,
                       fmt::format("inputs are made: output %{} is not", id));
        }
      }
    }
  }

  // An op writes an axis' extent anew when all earlier ops over the axis have ended.
  void check_extents(BatchAxis axis) const {
    const auto over_axis = [&](ValueId id) {
      return id != kNoValue && program_.value(id).type.axis == axis;
    };
    std::vector<int> over;  // since the extent was written
    for (size_t o = 0; o < program_.ops.size(); ++o) {
      const Op& op = program_.ops[o];
      const int self = static_cast<int>(o);
      if (op.def->writes_extent == axis) {
        for (int other : over) require_extent(axis, other, self);
        over = {self};
      } else if (std::ranges::any_of(op.inputs, over_axis) ||
                 std::ranges::any_of(op.outputs, over_axis)) {
        over.push_back(self);
      }
    }
  }

  void require_extent(BatchAxis axis, int first, int then) const {
    for (int mb = 0; mb < rank_.micro_batches(); ++mb) {
      const int a = rank_.launch_of(first, mb), b = rank_.launch_of(then, mb);
      if (order_.before_access(a, b)) continue;
      rank_.refuse(program_.ops[then], mb,
                   fmt::format("extents in order (WAR): launch {} writes the extent of {}, and {}, "
                               "which runs over it, need not have ended",
                               b, to_string(axis), rank_.name(a)));
    }
  }

  // Accesses of each value with writes after its making, in program order.
  void check_mutable_values() const {
    const std::vector<bool> is_mutable = mutable_values(program_);
    std::vector<std::vector<Access>> accesses(program_.values.size());
    for (size_t o = 0; o < program_.ops.size(); ++o) {
      const Op& op = program_.ops[o];
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        const ValueId id = op.inputs[k];
        if (id == kNoValue || !is_mutable[id]) continue;
        const Access access{static_cast<int>(o), mutates(op, k), first_phase(op, k)};
        if (access.writes || access.phase >= 0) add(accesses[id], access);
      }
    }
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const bool state = program_.values[v].kind == ValueKind::state;
      for (int mb = 0; mb < rank_.micro_batches(); ++mb) {
        check_value(static_cast<ValueId>(v), accesses[v], mb);
        for (int from = mb; state && continues(from);) check_state(accesses[v], mb, --from);
      }
    }
  }

  // An op with the value as two operands accesses the value from its first use on.
  static void add(std::vector<Access>& list, const Access& access) {
    if (list.empty() || list.back().op != access.op) return list.push_back(access);
    list.back().writes = list.back().writes || access.writes;
    list.back().phase = std::min(list.back().phase, access.phase);
  }

  // Within a micro-batch. The maker of a computed value is checked with the inputs.
  void check_value(ValueId id, const std::vector<Access>& accesses, int mb) const {
    size_t begin = 0;  // of the accesses since the last write, including the write
    bool written = false;
    for (size_t n = 0; n < accesses.size(); ++n) {
      const Access& access = accesses[n];
      for (size_t other = begin; other < n; ++other) {
        const bool conflicts = access.writes || (written && other == begin);
        if (conflicts) require(id, accesses[other], mb, access, mb);
      }
      if (access.writes) begin = n, written = true;
    }
  }

  // A continuing micro-batch reads the states written by the micro-batch before.
  void check_state(const std::vector<Access>& accesses, int mb, int from) const {
    for (const Access& read : accesses) {
      if (read.writes) continue;
      for (const Access& write : accesses) {
        if (write.writes && write.op < read.op) {
          require(kNoValue, write, from, read, mb);
        }
      }
    }
  }

  void require(ValueId id, const Access& first, int first_mb, const Access& then,
               int then_mb) const {
    const int a = rank_.launch_of(first.op, first_mb), b = rank_.launch_of(then.op, then_mb);
    const bool together =
        a == b && (rank_.launch(a).joined.empty() || (first.op == then.op && first_mb == then_mb));
    if (together || order_.before_access(a, b, std::max(then.phase, 0))) return;
    const Op& op = program_.ops[then.op];
    const Op& other = program_.ops[first.op];
    // Parts of results: their launch starts the taker after the parts are present.
    if (rank_.launch(b).takes_part_of(a) && first.writes && !then.writes &&
        part_taken(program_, rank_.launch(b), rank_.launch(a)) != kLastPart) {
      return;
    }
    if (id == kNoValue || program_.value(id).kind == ValueKind::state) {
      rank_.refuse(op, then_mb,
                   fmt::format("states in order: {} of micro-batch {} need not have ended",
                               other.def->kind, first_mb));
    }
    const std::string_view rule = !then.writes ? "RAW" : first.writes ? "WAW" : "WAR";
    rank_.refuse(op, then_mb,
                 fmt::format("accesses in order ({}): launch {} {} %{}, and {}, which {} %{}, need "
                             "not have ended",
                             rule, b, then.writes ? "writes" : "reads", id, rank_.name(a),
                             first.writes ? "writes" : "reads", id));
  }

  bool continues(int mb) const { return mb > 0 && rank_.schedule().micro_batches[mb].continues; }

  const RankView& rank_;
  const Program& program_;
  const LaunchOrder& order_;
};

}  // namespace

void verify_accesses(const RankView& rank) {
  AccessCheck(rank).run();
}

}  // namespace braid
