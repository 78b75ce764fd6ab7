// The demo model draws what its prompts say: size, colour, shape, place and background are read
// back from the pixels.
#include <cmath>

#include "braid/io/media/png.h"
#include "cli/program.h"

namespace braid::golden {
namespace {

using Colour = std::array<double, 3>;
using Named = std::vector<std::pair<std::string, Colour>>;

const Named kColours = {{"red", {220, 40, 40}},     {"green", {40, 170, 60}},
                        {"blue", {40, 80, 220}},    {"yellow", {230, 210, 40}},
                        {"purple", {150, 50, 180}}, {"orange", {240, 140, 30}}};
const Named kBackgrounds = {
    {"gray", {128, 128, 128}}, {"white", {245, 245, 245}}, {"black", {15, 15, 15}}};

double distance(const Colour& a, const Colour& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

std::string nearest(const Colour& c, const Named& table) {
  return std::ranges::min_element(table, {},
                                  [&](const auto& named) { return distance(c, named.second); })
      ->first;
}

// Some pixels of a picture: their mean colour and their bounding box.
struct Area {
  Colour sum{};
  double pixels = 0, columns = 0;
  int64_t left = 1000, right = -1, top = 1000, bottom = -1;

  void add(const Colour& c, int64_t x, int64_t y) {
    for (size_t i = 0; i < 3; ++i) sum[i] += c[i];
    pixels += 1;
    columns += static_cast<double>(x) + 0.5;
    left = std::min(left, x), right = std::max(right, x);
    top = std::min(top, y), bottom = std::max(bottom, y);
  }
  Colour mean() const { return {sum[0] / pixels, sum[1] / pixels, sum[2] / pixels}; }
};

using Scene = std::array<std::string, 5>;  // size, colour, shape, place, background

// What a picture of 64 x 64 pixels shows, in the words of a prompt.
Scene scene_of(const RgbImage& image) {
  const auto at = [&](int64_t x, int64_t y) {
    const uint8_t* p = image.pixels.data() + (((y * image.width) + x) * 3);
    return Colour{static_cast<double>(p[0]), static_cast<double>(p[1]), static_cast<double>(p[2])};
  };
  Area ground, shape;
  for (int64_t x = 0; x < image.width; ++x) {
    for (int64_t y : {0, 1, 2, 3}) {
      ground.add(at(x, y), x, y);
      ground.add(at(x, image.height - 1 - y), x, y);
    }
  }
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      if (distance(at(x, y), ground.mean()) > 60) shape.add(at(x, y), x, y);
    }
  }
  if (shape.pixels == 0) return {};
  const auto width = static_cast<double>(shape.right - shape.left + 1);
  const auto height = static_cast<double>(shape.bottom - shape.top + 1);
  const double fill = shape.pixels / (width * height), column = shape.columns / shape.pixels;
  return {width < 24 ? "small" : "big", nearest(shape.mean(), kColours),
          fill > 0.9    ? "square"
          : fill > 0.65 ? "circle"
                        : "triangle",
          column < 24   ? "on the left"
          : column > 40 ? "on the right"
                        : "in the middle",
          nearest(ground.mean(), kBackgrounds)};
}

class DemoImageTest : public CliTest {};

// Of 54 scenes, 97% have each of the prompt's words.
TEST_F(DemoImageTest, DrawsWhatThePromptSays) {
  const std::array<std::string, 3> shapes{"circle", "square", "triangle"};
  const std::array<std::string, 3> places{"on the left", "in the middle", "on the right"};
  std::array<int, 5> right{};
  for (size_t i = 0; i < 54; ++i) {
    const Scene wanted{i % 2 == 0 ? "big" : "small", kColours[i % 6].first, shapes[i / 6 % 3],
                       places[(i / 18 + i) % 3], kBackgrounds[(i / 18 + i / 2) % 3].first};
    const Outcome o = braid(fmt::format(
        "image -m {}/models/demo-image --device cpu --size 64 --steps 20 --text-tokens 16 "
        "--seed {} -p 'a {} {} {} {} in the {} background' -o {}",
        BRAID_SOURCE_DIR, i, wanted[0], wanted[1], wanted[2], wanted[3], wanted[4],
        path("scene.png")));
    ASSERT_EQ(o.status, 0) << o.err;
    const Scene made = scene_of(decode_png(read(path("scene.png")), "scene.png").image);
    for (size_t w = 0; w < made.size(); ++w) right[w] += made[w] == wanted[w] ? 1 : 0;
  }
  for (size_t w = 0; w < right.size(); ++w) EXPECT_GE(right[w], 53) << "word " << w;
}

}  // namespace
}  // namespace braid::golden
