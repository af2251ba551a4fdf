#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "app/gui/entry.h"
#include "tests/gui/fake_controller.h"
#include "tests/gui/synthetic_sweep.h"
#include "tests/support/results.h"

/// Tests that pictures are drawn off-screen with EGL; their contents are not compared.
namespace draftscope::test {
namespace {

struct Picture {
    std::uint32_t width = 0, height = 0;
    std::vector<std::uint8_t> rgb;
};

std::uint32_t read_u32(const std::string& bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    return value;
}

/// Reads a PNG of write_png(): one IDAT, every row with filter "up". Checks all CRCs.
Picture read_png(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    Picture picture;
    std::string packed;
    EXPECT_EQ(bytes.substr(0, 8), "\x89PNG\r\n\x1a\n");
    for (std::size_t at = 8; at + 12 <= bytes.size();) {
        const std::uint32_t size = read_u32(bytes, at);
        const std::string type = bytes.substr(at + 4, 4);
        const auto crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + at + 4), size + 4);
        EXPECT_EQ(crc, read_u32(bytes, at + 8 + size)) << type;
        if (type == "IHDR") {
            picture.width = read_u32(bytes, at + 8);
            picture.height = read_u32(bytes, at + 12);
        }
        if (type == "IDAT") packed = bytes.substr(at + 8, size);
        at += 12 + size;
    }
    const std::size_t row = std::size_t{picture.width} * 3;
    std::vector<std::uint8_t> raw((row + 1) * picture.height);
    uLongf length = raw.size();
    EXPECT_EQ(uncompress(raw.data(), &length, reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
              Z_OK);
    EXPECT_EQ(length, raw.size());
    picture.rgb.resize(row * picture.height);
    for (std::size_t y = 0; y < picture.height; ++y)
        for (std::size_t x = 0; x < row; ++x)
            picture.rgb[y * row + x] = static_cast<std::uint8_t>(
                raw[y * (row + 1) + 1 + x] + (y == 0 ? 0 : picture.rgb[(y - 1) * row + x]));
    return picture;
}

class Pixels : public ::testing::Test {
  protected:
    void SetUp() override {
        folder_ =
            std::filesystem::temp_directory_path() /
            (std::string("draftscope_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
             std::to_string(::getpid()));
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    Picture take(GuiOptions options) {
        FakeController controller;
        controller.submit({CmdStart{}});
        controller.advance(30);
        options.run_demo = false;
        options.screenshot = (folder_ / "picture.png").string();
        const Status status = run_gui(controller, options);
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return read_png(options.screenshot);
    }

    std::filesystem::path folder_;
};

double mean(const Picture& picture) {
    double sum = 0;
    for (std::uint8_t value : picture.rgb) sum += value;
    return sum / static_cast<double>(picture.rgb.size());
}

TEST_F(Pixels, RendersSomethingAndThemesDiffer) {
    GuiOptions options;
    options.width = 1200;
    options.height = 800;
    const Picture dark = take(options);
    options.theme = "light";
    const Picture light = take(options);
    ASSERT_EQ(dark.width, 1200u);
    ASSERT_EQ(dark.height, 800u);
    std::set<std::array<std::uint8_t, 3>> colours;
    for (std::size_t i = 0; i + 2 < dark.rgb.size(); i += 3)
        colours.insert({dark.rgb[i], dark.rgb[i + 1], dark.rgb[i + 2]});
    EXPECT_GT(colours.size(), 200u) << "text and plots, not a uniform area";
    EXPECT_LT(mean(dark), 70);
    EXPECT_GT(mean(light), 190);
}

TEST_F(Pixels, SameRunGivesSamePicture) {
    GuiOptions options;
    options.width = 900;
    options.height = 600;
    EXPECT_EQ(take(options).rgb, take(options).rgb);
}

TEST_F(Pixels, InvalidOptionsAreRejectedBeforeDrawing) {
    FakeController controller;
    GuiOptions options;
    options.run_demo = false;
    options.screenshot = (folder_ / "picture.png").string();
    options.theme = "pink";
    EXPECT_EQ(run_gui(controller, options).error().kind, ErrorKind::bad_input);
    options.theme = "dark";
    options.layout = "nonsense";
    EXPECT_EQ(run_gui(controller, options).error().kind, ErrorKind::bad_input);
    options.layout = "explain";
    options.width = 1;
    EXPECT_EQ(run_gui(controller, options).error().kind, ErrorKind::bad_input);
    options.width = 800;
    options.screenshot = (folder_ / "missing" / "picture.png").string();
    EXPECT_EQ(run_gui(controller, options).error().kind, ErrorKind::failed);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Pixels, PlotsAreDrawnWithoutAWindow) {
    FakeController controller;
    controller.submit({CmdStart{}});
    controller.advance(30);
    PlotOptions options;
    options.out = folder_.string();
    options.width = 640;
    options.height = 400;
    EXPECT_EQ(require(render_plots(*controller.snapshot(), options)).size(), plot_names().size() - 1);
    options.sweeps = {synthetic_sweep()};
    const auto files = require(render_plots(*controller.snapshot(), options));
    ASSERT_EQ(files.size(), plot_names().size());
    std::set<double> means;
    for (const std::string& file : files) {
        const Picture picture = read_png(file);
        EXPECT_EQ(picture.width, 640u);
        EXPECT_EQ(picture.height, 400u);
        EXPECT_GT(std::set<std::uint8_t>(picture.rgb.begin(), picture.rgb.end()).size(), 20u) << file;
        means.insert(mean(picture));
    }
    EXPECT_EQ(means.size(), files.size());
    // Different rounds give different pictures, equal rounds give equal pictures.
    const auto tree = [&](int round) {
        options.plots = {"tree"};
        options.round = round;
        options.out = (folder_ / "tree.png").string();
        const auto done = require(render_plots(*controller.snapshot(), options));
        return read_png(options.out).rgb;
    };
    const auto fifth = tree(5);
    EXPECT_EQ(fifth, tree(5));
    EXPECT_NE(fifth, tree(6));
    options.theme = "dark";
    EXPECT_NE(fifth, tree(5));
    // A capture of a sweep alone has no runs.
    options.plots = {};
    options.out = (folder_ / "sweep").string();
    EXPECT_EQ(require(render_plots(Snapshot(), options)).size(), 1u);
    // Oracles are drawn above the curves.
    options.plots = {"sweep"};
    options.out = (folder_ / "sweep.png").string();
    const auto sweep = [&](const std::shared_ptr<const SweepReport>& view) {
        options.sweeps = {view};
        EXPECT_TRUE(is_ok(render_plots(Snapshot(), options)));
        return read_png(options.out).rgb;
    };
    auto without = std::make_shared<SweepReport>(*synthetic_sweep());
    without->oracles.clear();
    EXPECT_NE(sweep(synthetic_sweep()), sweep(without));
    options.sweeps = {};
    EXPECT_EQ(render_plots(*controller.snapshot(), options).error().kind, ErrorKind::bad_input);
}

TEST_F(Pixels, DrawsImportedTimelineAsOverlay) {
    const auto timeline = [&](bool overlay) {
        FakeController controller;
        controller.submit({CmdStart{}});
        controller.advance(30);
        if (overlay) {
            FakeController other;
            other.submit({CmdStart{}});
            other.advance(40);
            controller.edit_status().overlay = other.snapshot();
        }
        GuiOptions options;
        options.layout = "profile";
        options.run_demo = false;
        options.screenshot = (folder_ / "picture.png").string();
        EXPECT_TRUE(run_gui(controller, options).ok());
        return read_png(options.screenshot).rgb;
    };
    EXPECT_NE(timeline(false), timeline(true));
}

}  // namespace
}  // namespace draftscope::test
