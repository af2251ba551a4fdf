#include <GLFW/glfw3.h>
#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "app/gui/entry.h"
#include "app/gui/shell/display.h"
#include "app/gui/shell/gl_pixels.h"

namespace draftscope {
namespace {

/// Protects the window from a wake-up by another thread while it closes.
std::mutex window_mutex;
bool window_open = false;
std::string last_glfw_error;

void remember_error(int, const char* text) {
    last_glfw_error = text;
}

class WindowDisplay final : public Display {
  public:
    explicit WindowDisplay(GLFWwindow* window) : window_(window) {
        glfwSetWindowUserPointer(window_, this);
        glfwMakeContextCurrent(window_);
        glfwSwapInterval(1);
        // Set before ImGui's callbacks, which chain to these.
        glfwSetCursorPosCallback(window_, [](GLFWwindow* w, double, double) { count(w); });
        glfwSetMouseButtonCallback(window_, [](GLFWwindow* w, int, int, int) { count(w); });
        glfwSetScrollCallback(window_, [](GLFWwindow* w, double, double) { count(w); });
        glfwSetKeyCallback(window_, [](GLFWwindow* w, int, int, int, int) { count(w); });
        glfwSetCharCallback(window_, [](GLFWwindow* w, unsigned) { count(w); });
        glfwSetWindowFocusCallback(window_, [](GLFWwindow* w, int) { count(w); });
        glfwSetDropCallback(window_, [](GLFWwindow* w, int count_of, const char** paths) {
            auto& dropped = static_cast<WindowDisplay*>(glfwGetWindowUserPointer(w))->dropped_;
            dropped.insert(dropped.end(), paths, paths + count_of);
            count(w);
        });
        glfwSetFramebufferSizeCallback(window_, [](GLFWwindow* w, int, int) { count(w); });
        glfwSetWindowRefreshCallback(window_, [](GLFWwindow* w) { count(w); });
        ImGui_ImplGlfw_InitForOpenGL(window_, true);
        ImGui_ImplOpenGL3_Init("#version 130");
        set_open(true);
    }
    ~WindowDisplay() override {
        set_open(false);
        ImGui_ImplOpenGL3_Shutdown();
        ImGui_ImplGlfw_Shutdown();
        glfwDestroyWindow(window_);
        glfwTerminate();
    }
    void wait(double seconds) override {
        if (seconds > 0)
            glfwWaitEventsTimeout(seconds);
        else
            glfwPollEvents();
    }
    void new_frame() override {
        ImGui_ImplOpenGL3_NewFrame();
        ImGui_ImplGlfw_NewFrame();
    }
    void present(ImDrawData* draw_data, std::uint32_t clear_rgb) override {
        int width = 0, height = 0;
        glfwGetFramebufferSize(window_, &width, &height);
        clear_gl(width, height, clear_rgb);
        ImGui_ImplOpenGL3_RenderDrawData(draw_data);
        glfwSwapBuffers(window_);
    }
    bool wants_close() const override { return glfwWindowShouldClose(window_) != 0; }
    void cancel_close() override { glfwSetWindowShouldClose(window_, 0); }
    bool minimised() const override { return glfwGetWindowAttrib(window_, GLFW_ICONIFIED) != 0; }
    float content_scale() const override {
        float x = 1, y = 1;
        glfwGetWindowContentScale(window_, &x, &y);
        return std::clamp(std::max(x, y), 0.5f, 4.0f);
    }
    void set_title(const std::string& title) override { glfwSetWindowTitle(window_, title.c_str()); }
    std::uint64_t input_count() const override { return input_count_; }
    std::vector<std::string> take_dropped() override { return std::exchange(dropped_, {}); }
    Result<Image> read_pixels() override {
        int width = 0, height = 0;
        glfwGetFramebufferSize(window_, &width, &height);
        glReadBuffer(GL_FRONT);  // what present() showed
        Image image = read_gl_pixels(width, height);
        glReadBuffer(GL_BACK);
        return image;
    }

  private:
    static void set_open(bool open) {
        const std::lock_guard lock(window_mutex);
        window_open = open;
    }
    static void count(GLFWwindow* window) {
        ++static_cast<WindowDisplay*>(glfwGetWindowUserPointer(window))->input_count_;
    }
    GLFWwindow* window_;
    std::uint64_t input_count_ = 0;
    std::vector<std::string> dropped_;
};

}  // namespace

Result<std::unique_ptr<Display>> make_window_display(int width, int height, const std::string& title) {
    glfwSetErrorCallback(remember_error);
    if (glfwInit() == 0)
        return failed(
            "cannot open the window: {}. Without a display, use --screenshot FILE.png or draftscope run",
            last_glfw_error.empty() ? "no display" : last_glfw_error);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 0);
    glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
    GLFWwindow* window = glfwCreateWindow(width, height, title.c_str(), nullptr, nullptr);
    if (window == nullptr) {
        const std::string why = last_glfw_error;
        glfwTerminate();
        return failed("cannot open the window: {} (OpenGL 3.0 is required)", why);
    }
    return std::unique_ptr<Display>(std::make_unique<WindowDisplay>(window));
}

bool display_available() {
    const std::lock_guard lock(window_mutex);
    if (window_open) return true;
    if (glfwInit() == 0) return false;
    glfwTerminate();
    return true;
}

void wake_gui() {
    const std::lock_guard lock(window_mutex);
    if (window_open) glfwPostEmptyEvent();
}

}  // namespace draftscope
