#include "braid/kernels/cuda/linear/device/few_linear.h"

#include "braid/kernels/cuda/linear/device/panel_linear.h"
#include "braid/kernels/cuda/linear/device/stream_linear.h"

namespace braid::cuda {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

FewConfig choose_few(const SkinnyParams& params, const SkinnyDevice& device) {
  const PanelShape panel = panel_shape(params);
  if (panel_pays(panel) && panel_takes(panel, device)) return choose_panel(panel, device);
  if (const StreamShape shape = stream_shape(params); stream_takes(shape)) {
    return choose_stream(shape, device.num_sms);
  }
  return choose_skinny(skinny_shape(params), device);
}

bool norm_goes_first(SkinnyParams params, const SkinnyDevice& device) {
  params.normed = false;
  const PanelShape panel = panel_shape(params);
  return panel_pays(panel) && panel_takes(panel, device);
}

std::string to_string(const FewConfig& config) {
  return std::visit([](const auto& c) { return to_string(c); }, config);
}

void prepare_few_linear() {
  prepare_skinny_linear();
  prepare_stream_linear();
  prepare_panel_linear();
}

void few_linear(const SkinnyParams& params, const FewConfig& config, LaunchContext context) {
  std::visit(Overloaded{[&](const StreamConfig& c) { stream_linear(params, c, context); },
                        [&](const PanelConfig& c) { panel_linear(params, c, context); },
                        [&](const SkinnyConfig& c) { skinny_linear(params, c, context); }},
             config);
}

}  // namespace braid::cuda
