#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

struct ImDrawData;

/// Where frames go: a window, an off-screen picture, or (in tests) nowhere.
namespace draftscope {

struct Image {
    int width = 0, height = 0;
    std::vector<std::uint8_t> rgb;  ///< rows from the top, 3 bytes per pixel
};

class Backend {
  public:
    virtual ~Backend() = default;
    /// Sleeps until input, `wake_gui` or the time is up; at once for 0.
    virtual void wait(double seconds) = 0;
    /// Prepares ImGui's input and display size for the next frame.
    virtual void new_frame() = 0;
    virtual void present(ImDrawData* draw_data, std::uint32_t clear_rgb) = 0;
    virtual bool wants_close() const { return false; }
    virtual void cancel_close() {}
    virtual bool minimised() const { return false; }
    /// Of the monitor: 1 = 96 dots per inch.
    virtual float content_scale() const { return 1.0f; }
    virtual void set_title(const std::string&) {}
    /// Grows with every input event, so that the loop knows when to draw.
    virtual std::uint64_t input_count() const { return 0; }
    virtual Result<Image> read_pixels() = 0;
};

/// A GLFW window with OpenGL 3. ImGui's context must exist.
Result<std::unique_ptr<Backend>> make_window_backend(int width, int height, const std::string& title);
/// An EGL surfaceless framebuffer of that size: works without a display, also on a software renderer.
Result<std::unique_ptr<Backend>> make_offscreen_backend(int width, int height);

}  // namespace draftscope
