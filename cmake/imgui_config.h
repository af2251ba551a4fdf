#pragma once

// User configuration of Dear ImGui, the same for every translation unit.
#define ImDrawIdx unsigned int
#define IMGUI_USE_WCHAR32  // emoji
#define IMGUI_DISABLE_OBSOLETE_FUNCTIONS
// Each type costs another instance of every plot; all ten take minutes to compile.
#define IMPLOT_CUSTOM_NUMERIC_TYPES (float)(double)
#ifdef IMGUI_ENABLE_TEST_ENGINE
#define IMGUI_TEST_ENGINE_ENABLE_STD_FUNCTION 1
#endif
