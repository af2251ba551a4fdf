#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

struct ImDrawData;

/// Output of frames: a window, an off-screen picture, or (in tests) none.
namespace draftscope {

/// An RGB picture.
struct Image {
    int width = 0, height = 0;
    std::vector<std::uint8_t> rgb;  ///< top row first, 3 bytes per pixel
};

/// Writes an 8-bit RGB PNG with one IDAT chunk. An existing file is replaced atomically.
Status write_png(const std::string& path, const Image& image);

class Display {
  public:
    virtual ~Display() = default;
    /// Waits for input, wake_gui() or the timeout. With 0 it returns at once.
    virtual void wait(double seconds) = 0;
    /// Sets ImGui's input and display size for the next frame.
    virtual void new_frame() = 0;
    virtual void present(ImDrawData* draw_data, std::uint32_t clear_rgb) = 0;
    virtual bool wants_close() const { return false; }
    virtual void cancel_close() {}
    virtual bool minimised() const { return false; }
    /// Returns the monitor's scale; 1 = 96 dots per inch.
    virtual float content_scale() const { return 1.0f; }
    virtual void set_title(const std::string&) {}
    /// Returns the number of input events so far; the loop draws if it changed.
    virtual std::uint64_t input_count() const { return 0; }
    /// Returns the paths that were dropped on the window since the last call.
    virtual std::vector<std::string> take_dropped() { return {}; }
    virtual Result<Image> read_pixels() = 0;
};

/// Makes a GLFW window with OpenGL 3. ImGui's context must exist. Returns an error without a display.
Result<std::unique_ptr<Display>> make_window_display(int width, int height, const std::string& title);
/// Makes an EGL surfaceless framebuffer. It needs no display and works with a software renderer.
Result<std::unique_ptr<Display>> make_offscreen_display(int width, int height);

}  // namespace draftscope
