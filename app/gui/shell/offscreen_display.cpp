#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include "app/gui/shell/display.h"
#include "app/gui/shell/gl_pixels.h"

namespace draftscope {
namespace {

/// Owns display and context, so that an error during initialisation releases both.
struct EglContext {
    EGLDisplay display = EGL_NO_DISPLAY;
    EGLContext context = EGL_NO_CONTEXT;

    EglContext() = default;
    EglContext(const EglContext&) = delete;
    EglContext& operator=(const EglContext&) = delete;
    ~EglContext() {
        if (display == EGL_NO_DISPLAY) return;
        eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
        if (context != EGL_NO_CONTEXT) eglDestroyContext(display, context);
        eglTerminate(display);
    }
};

Status create(EglContext& egl) {
    egl.display = eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (egl.display == EGL_NO_DISPLAY) egl.display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (egl.display == EGL_NO_DISPLAY || eglInitialize(egl.display, nullptr, nullptr) == EGL_FALSE)
        return failed(
            "off-screen rendering needs EGL: eglInitialize gives error {:#x}. Install Mesa's EGL library",
            eglGetError());
    eglBindAPI(EGL_OPENGL_API);
    const EGLint config_wanted[] = {EGL_SURFACE_TYPE, 0, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    eglChooseConfig(egl.display, config_wanted, &config, 1, &count);
    const EGLint context_wanted[] = {EGL_CONTEXT_MAJOR_VERSION, 3, EGL_CONTEXT_MINOR_VERSION, 0, EGL_NONE};
    egl.context =
        eglCreateContext(egl.display, count > 0 ? config : EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, context_wanted);
    if (egl.context == EGL_NO_CONTEXT ||
        eglMakeCurrent(egl.display, EGL_NO_SURFACE, EGL_NO_SURFACE, egl.context) == EGL_FALSE)
        return failed("off-screen rendering needs an OpenGL 3.0 context: EGL error {:#x}", eglGetError());
    return {};
}

class OffscreenDisplay final : public Display {
  public:
    OffscreenDisplay(std::unique_ptr<EglContext> egl, int width, int height)
        : egl_(std::move(egl)), width_(width), height_(height) {
        glGenTextures(1, &texture_);
        glBindTexture(GL_TEXTURE_2D, texture_);
        glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, nullptr);
        glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_LINEAR);
        glGenFramebuffers(1, &framebuffer_);
        glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
        glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, texture_, 0);
        ImGui_ImplOpenGL3_Init("#version 130");
    }
    ~OffscreenDisplay() override {
        ImGui_ImplOpenGL3_Shutdown();
        glDeleteFramebuffers(1, &framebuffer_);
        glDeleteTextures(1, &texture_);
    }
    bool complete() const { return glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE; }
    void wait(double) override {}
    void new_frame() override {
        ImGuiIO& io = ImGui::GetIO();
        io.DisplaySize = ImVec2(static_cast<float>(width_), static_cast<float>(height_));
        io.DeltaTime = 1.0f / 60.0f;
        ImGui_ImplOpenGL3_NewFrame();
    }
    void present(ImDrawData* draw_data, std::uint32_t clear_rgb) override {
        glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
        clear_gl(width_, height_, clear_rgb);
        ImGui_ImplOpenGL3_RenderDrawData(draw_data);
    }
    Result<Image> read_pixels() override {
        glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
        return read_gl_pixels(width_, height_);
    }

  private:
    std::unique_ptr<EglContext> egl_;
    int width_, height_;
    GLuint texture_ = 0, framebuffer_ = 0;
};

}  // namespace

Result<std::unique_ptr<Display>> make_offscreen_display(int width, int height) {
    if (width < 64 || height < 64 || width > 16384 || height > 16384)
        return bad_input("picture size {}x{}: each side must be between 64 and 16384 pixels", width, height);
    auto egl = std::make_unique<EglContext>();
    DS_TRY(create(*egl));
    auto display = std::make_unique<OffscreenDisplay>(std::move(egl), width, height);
    if (!display->complete())
        return failed("off-screen rendering: no framebuffer of {}x{} pixels", width, height);
    return std::unique_ptr<Display>(std::move(display));
}

}  // namespace draftscope
