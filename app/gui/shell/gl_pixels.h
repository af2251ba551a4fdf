#pragma once

#define GL_GLEXT_PROTOTYPES
#include <GL/gl.h>
#include <GL/glext.h>

#include "app/gui/shell/display.h"

namespace draftscope {

/// Returns the bound framebuffer's picture, top row first.
inline Image read_gl_pixels(int width, int height) {
    Image image{width, height, {}};
    const std::size_t row = static_cast<std::size_t>(width) * 3;
    std::vector<std::uint8_t> flipped(row * height);
    glPixelStorei(GL_PACK_ALIGNMENT, 1);
    glReadPixels(0, 0, width, height, GL_RGB, GL_UNSIGNED_BYTE, flipped.data());
    for (int y = height; y-- > 0;) {
        const auto first = flipped.begin() + static_cast<std::ptrdiff_t>(row) * y;
        image.rgb.insert(image.rgb.end(), first, first + static_cast<std::ptrdiff_t>(row));
    }
    return image;
}

inline void clear_gl(int width, int height, std::uint32_t rgb) {
    glViewport(0, 0, width, height);
    glClearColor(static_cast<float>((rgb >> 16) & 0xFF) / 255.0f,
                 static_cast<float>((rgb >> 8) & 0xFF) / 255.0f, static_cast<float>(rgb & 0xFF) / 255.0f,
                 1.0f);
    glClear(GL_COLOR_BUFFER_BIT);
}

}  // namespace draftscope
